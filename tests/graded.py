"""Judged episodes in a line, for tests that are about something else."""

from typing import Any

from turnwise.types import Group, Outcome, Task, Trajectory, Verdict


def graded(
    success: bool | None,
    task: Task | str = "t",
    episode: int = 0,
    reward: float | None = None,
    **fields: Any,
) -> Trajectory:
    """An episode of group g with this success, and a reward of 1 for one unless it is given; None
    is ungraded. Other fields are a trajectory's."""
    outcome, verdict = Outcome.GRADER_ERROR, None
    if success is not None:
        outcome = Outcome.SUCCESS if success else Outcome.FAILURE
        verdict = Verdict(float(success) if reward is None else reward, success)
    own = {"group": "g", "seed": 0, "outcome": outcome, "verdict": verdict, **fields}
    return Trajectory(Task(task, "?") if isinstance(task, str) else task, episode=episode, **own)


def group_of(*successes: bool | None, **fields: Any) -> Group:
    """A group of such episodes, numbered from 0."""
    return Group("g", tuple(graded(one, episode=n, **fields) for n, one in enumerate(successes)))
