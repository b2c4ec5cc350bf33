"""ToolRL's reward as parts (arXiv 2504.13958), for tasks with expected calls in `secret["calls"]`.

A recipe says how much they count, which gives the paper's variants: the type of reward
(which parts there are; `length` of `conduct.py` is the paper's for thoughts), its scale (the
weights; adding a number to all rewards changes no comparison), its granularity (an option), its
change over time (`schedule`). Not here: the formulas themselves (`tool_calls.py`).
"""

from turnwise.rewards.measuring import PartError
from turnwise.rewards.parts import reward_part
from turnwise.types import ToolCall, Trajectory
from turnwise_environments.rewards.tool_calls import (
    BEST,
    WORST,
    Granularity,
    read_calls,
    toolrl_correctness,
    toolrl_format,
)

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
