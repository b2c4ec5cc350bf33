"""Tool calls compared with the expected ones: ToolRL's reward, and how calls are read from text.

The reward is R_format + R_correct: 0 or 1 for the form, and -3 to 3 for the calls. Source: Qian et
al. 2025 (arXiv 2504.13958), section 3. A call is matched with what is left over of the others, as
there. Our definition: expected calls are matched in their order, a match of nothing leaves its call
free, and true is not 1.

Not here: whether calls had the right effect (that is an environment's state).
"""

import json
import re
from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any

from turnwise.types import ToolCall

MAX_CHARACTERS = 20_000
WORST, BEST = -3.0, 3.0
"""Range of R_correct."""
CALL_FORM = '{"name": "…", "parameters": {…}}'


def read_calls(text: str) -> list[ToolCall]:
    """The calls of a text: JSON objects with `name` and `parameters`, one after the other.

    Raises ValueError, in words for the agent, for anything else, and for a text without calls.
    """
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"the calls are longer than {MAX_CHARACTERS} characters")
    calls: list[ToolCall] = []
    place = 0
    while text[place:].strip():
        place += len(text[place:]) - len(text[place:].lstrip())
        number = len(calls) + 1
        try:
            value, place = _DECODER.raw_decode(text, place)
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
    field = r"<{0}>(?:(?!</?{0}>).)*\S(?:(?!</?{0}>).)*</{0}>"
    pattern = r"\s*".join(field.format(re.escape(name)) for name in fields)
    return float(re.fullmatch(pattern, text.strip(), re.DOTALL) is not None)


def toolrl_correctness(expected: Sequence[ToolCall], given: Sequence[ToolCall] | None) -> float:
    """R_correct = 6 S / S_max - 3, of -3 to 3.

    S is the overlap of the names, and for each expected call the best that is left of the given
    ones with its name: the overlap of the parameters' names, and 1 for each parameter with the
    expected value. S_max is 1, and 1 + its number of parameters for each expected call. `given` is
    None for calls that cannot be read, which is the worst; where no call is expected, it is 0.
    """
    if not expected:
        return 0.0
    if given is None:
        return WORST
    score = overlap([call.name for call in expected], [call.name for call in given])
    free = list(given)
    for call in expected:
        scored = [(_similarity(call, other), -place) for place, other in enumerate(free)]
        best, place = max(scored, default=(0.0, 0))
        if best > 0:
            score += best
            del free[-place]
    highest = 1.0 + sum(1 + len(call.arguments) for call in expected)
    return (BEST - WORST) * score / highest + WORST


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


def _similarity(expected: ToolCall, given: ToolCall) -> float:
    if expected.name != given.name:
        return 0.0
    wanted, found = expected.arguments, given.arguments
    right = sum(key in found and same_value(value, found[key]) for key, value in wanted.items())
    return overlap([*wanted], [*found]) + right


def _call(value: Any, number: int) -> ToolCall:
    if not isinstance(value, dict) or value.keys() != {"name", "parameters"}:
        raise ValueError(f"call {number} is not an object with name and parameters: {CALL_FORM}")
    if not isinstance(value["name"], str) or not isinstance(value["parameters"], dict):
        raise ValueError(f"call {number}: name is a string and parameters an object: {CALL_FORM}")
    return ToolCall(value["name"], value["parameters"])


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON number")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is there twice")
    return found


_DECODER = json.JSONDecoder(parse_constant=_refuse, object_pairs_hook=_unique)
