"""ToolRL's reward (arXiv 2504.13958), for tasks with expected calls in `secret["calls"]`.

It is R_format + R_correct: 0 or 1 for the form, and -3 to 3 for the calls (section 3). A call is
matched with what is left over of the others, as there. Our definition: expected calls are matched
in their order, a match of nothing leaves its call free, and true is not 1. How much of a call has
to be right for a part of the reward is its granularity:

| granularity | S is the sum of | S_max |
|---|---|---|
| fine | overlap of names; of each call's parameter names; 1 for each right value | 1 + sum(1 + n) |
| intermediate | overlap of names; 1 for each call that is there as expected | 1 + calls |
| coarse | 1 where all calls are there as expected, in order | 1 |
| parameters | overlap of names; of each call's parameter names | 1 + calls |
| names | overlap of names | 1 |

The first three are the paper's, the others ours. A recipe's weights, options and `schedule` give
the paper's other variants; `length` of `conduct.py` is its reward for thoughts.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Literal

from turnwise.rewards.measuring import PartError
from turnwise.rewards.parts import reward_part
from turnwise.strict_json import DECODER
from turnwise.types import ToolCall, Trajectory

MAX_CHARACTERS = 20_000
WORST, BEST = -3.0, 3.0
"""Range of R_correct."""
Granularity = Literal["fine", "intermediate", "coarse", "parameters", "names"]
CALL_FORM = '{"name": "…", "parameters": {…}}'


def read_calls(text: str) -> list[ToolCall]:
    """The calls of a text: JSON objects with `name` and `parameters`, one after the other. Raises
    ValueError, in words for the agent, for anything else, and for a text without calls."""
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"the calls are longer than {MAX_CHARACTERS} characters")
    calls: list[ToolCall] = []
    place = 0
    while text[place:].strip():
        place += len(text[place:]) - len(text[place:].lstrip())
        number = len(calls) + 1
        try:
            value, place = DECODER.raw_decode(text, place)
        except (ValueError, RecursionError) as error:
            reason = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
            raise ValueError(f"call {number} is not JSON: {reason}; write {CALL_FORM}") from None
        calls.append(_call(value, number))
    if not calls:
        raise ValueError(f"there is no call: write {CALL_FORM}")
    return calls


def write_calls(calls: Sequence[ToolCall]) -> str:
    """Calls as text that `read_calls` reads: an object on each line."""
    return "\n".join(
        json.dumps({"name": call.name, "parameters": dict(call.arguments)}, ensure_ascii=False)
        for call in calls
    )


def toolrl_format(text: str, fields: Sequence[str]) -> float:
    """R_format: 1 when a turn is exactly these tagged fields, each once and in this order, else 0.

    >>> toolrl_format("<think>a</think> <answer>b</answer>", ("think", "answer"))
    1.0
    """
    field = r"<{0}>\s*+(?:(?!</?{0}>).)++</{0}>"  # possessive, else a long text takes minutes
    pattern = r"\s*".join(field.format(re.escape(name)) for name in fields)
    return float(re.fullmatch(pattern, text.strip(), re.DOTALL) is not None)


def toolrl_correctness(
    expected: Sequence[ToolCall],
    given: Sequence[ToolCall] | None,
    granularity: Granularity = "fine",
) -> float:
    """R_correct = 6 S / S_max - 3, of -3 to 3. S is the overlap of the names, and for each expected
    call the best that is left of the given ones with its name: the overlap of the parameters'
    names, and 1 for each parameter with the expected value. S_max is 1, and 1 + its number of
    parameters for each expected call. Coarser granularities count as the table above says. `given`
    is None for calls that cannot be read, which is the worst; where no call is expected, it is
    0."""
    if not expected:
        return 0.0
    if given is None:
        return WORST
    if granularity == "coarse":
        same = len(expected) == len(given) and all(map(_same_call, expected, given))
        return BEST if same else WORST
    similarity, highest_of = _SIMILARITIES[granularity]
    score = overlap([call.name for call in expected], [call.name for call in given])
    free = list(given)
    for call in expected:
        named = ((place, other) for place, other in enumerate(free) if other.name == call.name)
        # Of calls that are equally good the first one: hence the minus.
        scored = [(similarity(call, other), -place) for place, other in named]
        best, place = max(scored, default=(0.0, 0))
        if best > 0:
            score += best
            del free[-place]
    return (BEST - WORST) * score / (1.0 + sum(map(highest_of, expected))) + WORST


def overlap(first: Sequence[Hashable], second: Sequence[Hashable]) -> float:
    """The common part of two lists, as a share of all that is in either, repetitions counted
    (Jaccard); 1 for two empty ones."""
    one, other = Counter(first), Counter(second)
    union = sum((one | other).values())
    return sum((one & other).values()) / union if union else 1.0


def same_value(first: Any, second: Any) -> bool:
    """Equal as JSON: 1 and 1.0 are one number, true and 1 are not the same, order is free in an
    object only."""
    if isinstance(first, bool) or isinstance(second, bool):
        return first is second
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(
            same_value(first[key], second[key]) for key in first
        )
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(same_value, first, second))
    return bool(first == second)


def _right_values(expected: ToolCall, given: ToolCall) -> int:
    wanted, found = expected.arguments, given.arguments
    return sum(key in found and same_value(value, found[key]) for key, value in wanted.items())


def _same_parameters(expected: ToolCall, given: ToolCall) -> float:
    return overlap([*expected.arguments], [*given.arguments])


def _same_call(expected: ToolCall, given: ToolCall) -> bool:
    return expected.name == given.name and same_value(
        dict(expected.arguments), dict(given.arguments)
    )


_SIMILARITIES: dict[str, tuple[Callable[..., float], Callable[[ToolCall], int]]] = {
    "fine": (
        lambda wanted, given: _same_parameters(wanted, given) + _right_values(wanted, given),
        lambda wanted: 1 + len(wanted.arguments),
    ),
    "intermediate": (_same_call, lambda wanted: 1),
    "parameters": (_same_parameters, lambda wanted: 1),
    "names": (lambda wanted, given: 0.0, lambda wanted: 0),
}
"""The points of a given call with the name of the expected one, and the most that it can have."""


def _call(value: Any, number: int) -> ToolCall:
    if not isinstance(value, dict) or value.keys() != {"name", "parameters"}:
        raise ValueError(f"call {number} is not an object with name and parameters: {CALL_FORM}")
    if not isinstance(value["name"], str) or not isinstance(value["parameters"], dict):
        raise ValueError(f"call {number}: name is a string and parameters an object: {CALL_FORM}")
    return ToolCall(value["name"], value["parameters"])


TOOL = "tool_call"
"""The tool whose argument `calls` holds the calls of a task's own tools, as text."""


@reward_part("toolrl_format", 0, 1)
def toolrl_form(trajectory: Trajectory) -> float:
    """ToolRL's R_format: 1 when each turn is a thought, then calls or an answer, no more; else 0.

    It reads the tags of the scaffold `tags`: `<think>`, `<tool_call>`, `<answer>`.
    """
    forms = [
        toolrl_format(
            turn.action.text, ("think", "answer" if turn.action.answer is not None else TOOL)
        )
        for turn in trajectory.turns
        if not turn.action.summary
    ]
    return min(forms, default=0.0)


@reward_part("toolrl_calls", WORST, BEST)
def toolrl_calls(trajectory: Trajectory, granularity: Granularity = "fine") -> float:
    """ToolRL's R_correct: calls compared with the expected ones, -3 to 3; 0 where none is expected.

    `granularity` is the least that earns something: names and values one by one (`fine`), whole
    calls (`intermediate`), all calls at once (`coarse`); `parameters` and `names` leave out values,
    and parameters too.
    """
    found = trajectory.task.secret.get("calls")
    if not isinstance(found, str | list | tuple):
        raise PartError("the task's secret has no `calls`, as texts that say what is to be called")
    texts = [found] if isinstance(found, str) else _flat(found)
    text = "\n".join(texts)
    expected = read_calls(text) if text.strip() else []
    return toolrl_correctness(expected, calls_of(trajectory) or None, granularity)


def calls_of(trajectory: Trajectory) -> list[ToolCall]:
    """All calls that the model made through `tool_call` and that can be read, in order."""
    found: list[ToolCall] = []
    for call in (call for turn in trajectory.turns for call in turn.action.calls):
        if call.name != TOOL:
            continue
        try:
            found += read_calls(str(call.arguments.get("calls", "")))
        except ValueError:
            continue
    return found


def _flat(found: object) -> list[str]:
    """The texts of lists of lists of texts."""
    inner = found if isinstance(found, list | tuple) else ()
    return [found] if isinstance(found, str) else [text for one in inner for text in _flat(one)]
