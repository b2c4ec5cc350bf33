"""Sentences on what the figures of an evaluation cannot say.

Not here: the figures (`evaluate.py`), and comparisons (`paired.py`).
"""

from collections.abc import Sequence
from itertools import groupby

from turnwise.types import Trajectory

FEWEST = 6
"""Tasks in which two policies must differ, all in favour of the same one, before an exact test at
5% tells them apart: 2 * 0.5 ** 6 = 0.03."""


def cautions(trajectories: Sequence[Trajectory]) -> list[str]:
    """List them: success at floor or ceiling, episodes of a task that are all the same."""
    return [*_saturation(trajectories), *_repetition(trajectories)]


def _saturation(trajectories: Sequence[Trajectory]) -> list[str]:
    """Say where not even a perfect policy, or one that always fails, could be told from this one
    on these tasks: there are too few, or too few of them fail or succeed."""
    graded = [t for t in trajectories if t.outcome.graded and t.verdict is not None]
    tasks = {t.task.id for t in graded}
    failed = {t.task.id for t in graded if t.verdict is not None and not t.verdict.success}
    solved = {t.task.id for t in graded if t.verdict is not None and t.verdict.success}
    if 0 < len(tasks) < 2 * FEWEST:
        return [
            f"too few tasks: {len(tasks)} tell hardly any policy from this one; evaluate on "
            f"{2 * FEWEST} or more"
        ]
    found = []
    if tasks and len(failed) < FEWEST:
        found.append(
            f"at the ceiling: {len(failed)} of {len(tasks)} tasks failed, so these tasks cannot "
            "tell a better policy from this one; evaluate on more or harder ones"
        )
    if tasks and len(solved) < FEWEST:
        found.append(
            f"at the floor: {len(solved)} of {len(tasks)} tasks succeeded, so these tasks cannot "
            "tell a worse policy from this one; evaluate on more or easier ones"
        )
    return found


def _repetition(trajectories: Sequence[Trajectory]) -> list[str]:
    """Say where several episodes of a task are one episode, played again."""
    ordered = sorted(trajectories, key=lambda t: t.task.id)
    written = [
        [member.tokens.ids.tobytes() for member in members]
        for _, members in groupby(ordered, key=lambda t: t.task.id)
    ]
    several = [texts for texts in written if len(texts) > 1]
    if not several or any(len(set(texts)) > 1 for texts in several):
        return []
    return [
        "the episodes of each task are the same, token by token: more than one says nothing new; "
        "set evaluation.temperature above 0"
    ]
