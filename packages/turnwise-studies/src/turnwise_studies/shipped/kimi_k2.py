"""The reward and the demonstrations of the study kimi_k2."""

from dataclasses import replace

from turnwise.rollout.demonstrations import Script
from turnwise.types import ToolCall, Trajectory


def calculations(trajectory: Trajectory) -> float:
    """1 for the right answer to a question that needs a calculation alone, else 0."""
    assert trajectory.verdict is not None  # it is judged
    return float(trajectory.verdict.success and trajectory.task.info["needs"] == "calculator")


def wordy(script: Script, other: Script) -> Script:
    """Says each thought five times."""
    del other
    return [replace(action, thought=" and ".join([action.thought] * 5)) for action in script]


def searching(script: Script, other: Script) -> Script:
    """Searches for sums, too, which finds nothing, and then gives another task's answer."""
    (call,) = script[0].calls
    if call.name == "search":
        return script
    query = ToolCall("search", {"query": call.arguments["expression"]})
    return [replace(script[0], calls=(query,)), replace(script[-1], answer=other[-1].answer)]


def wordy_searching(script: Script, other: Script) -> Script:
    """Searches for sums, too, and says each thought five times."""
    return wordy(searching(script, other), other)
