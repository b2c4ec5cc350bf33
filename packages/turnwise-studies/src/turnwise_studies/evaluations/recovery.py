"""Recovery: the reactions of an agent to tool calls that were made to fail.

Not here: how calls are made to fail (`failing.py`).
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from turnwise.evaluation.effort import successes
from turnwise.types import ToolCall, ToolResult, Trajectory
from turnwise_studies.evaluations.failing import FAILURES

REACTIONS = ("same_call", "same_tool", "other_tool", "answer", "none")
"""Reactions to a failed call, in the agent's next turn: the call again with the same arguments;
another call of the tool; a call of another tool; an answer; nothing that could be read, or no turn
was left."""


def recovery(trajectories: Sequence[Trajectory]) -> dict[str, Any]:
    """The figures of episodes with failures among them.

    `failures` by kind; `reactions`, the share of failures that were followed by each of
    `REACTIONS`, and `tried_again`, by the first two together; graded `episodes` with a failure and
    their `success`. Shares are None of nothing.
    """
    kinds: Counter[str] = Counter()
    reactions: Counter[str] = Counter()
    struck = []
    for trajectory in trajectories:
        failed = _failed(trajectory)
        kinds.update(kind for _, _, kind in failed)
        reactions.update(_reaction(trajectory, turn, call) for turn, call, _ in failed)
        if failed and trajectory.outcome.graded:
            struck.append(trajectory)
    total = sum(kinds.values())
    shares = {name: reactions[name] / total if total else None for name in REACTIONS}
    again = reactions["same_call"] + reactions["same_tool"]
    return {
        "failures": {kind: kinds[kind] for kind in FAILURES},
        "reactions": shares,
        "tried_again": again / total if total else None,
        "episodes": len(struck),
        "success": len(successes(struck)) / len(struck) if struck else None,
    }


def _failed(trajectory: Trajectory) -> list[tuple[int, ToolCall, str]]:
    """List the calls that were made to fail: turn, call, kind of failure."""
    return [
        (number, result.call, kind)
        for number, turn in enumerate(trajectory.turns)
        for result in (turn.step.results if turn.step is not None else ())
        for kind in FAILURES
        if _is(result, kind)
    ]


def _is(result: ToolResult, kind: str) -> bool:
    return (result.content, result.ok) == (FAILURES[kind].content, FAILURES[kind].ok)


def _reaction(trajectory: Trajectory, turn: int, call: ToolCall) -> str:
    if turn + 1 >= len(trajectory.turns):
        return "none"
    action = trajectory.turns[turn + 1].action
    if any((one.name, one.arguments) == (call.name, call.arguments) for one in action.calls):
        return "same_call"
    if any(one.name == call.name for one in action.calls):
        return "same_tool"
    if action.calls:
        return "other_tool"
    return "answer" if action.answer is not None else "none"
