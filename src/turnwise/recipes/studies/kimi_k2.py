"""The reward and the demonstrations of the study kimi_k2."""

from turnwise.synthesis.demonstrations import Script
from turnwise.types import Trajectory


def calculations(trajectory: Trajectory) -> float:
    """1 for the right answer to a question that needs a calculation alone, else 0."""
    assert trajectory.verdict is not None  # it is judged
    return float(trajectory.verdict.success and trajectory.task.info["needs"] == "calculator")


def repeating(script: Script, other: Script) -> Script:
    """Makes each call three times before it goes on."""
    del other
    return [action for action in script for _ in range(3 if action.calls else 1)]
