"""Ways to play a step's groups, by name, for algorithms that need more than independent episodes.

Each function gives one group for each task.

Next: `rollout/runner.py`.
"""

from collections.abc import Awaitable, Callable, Sequence

from turnwise.algorithms.parts import part
from turnwise.rollout.oversampling import oversample
from turnwise.rollout.runner import RolloutRunner, new_groups
from turnwise.types import Group, Task

Rollout = Callable[..., Awaitable[list[Group]]]
"""(runner, tasks, group size, seed, label, **numbers) -> groups; the run's seed and the label of
the occasion determine every random number. Raises RunStoppedError for too many ungraded
episodes."""


independent = part("rollout", "independent", "each episode from the beginning, by itself")(
    RolloutRunner.collect
)


async def oversampled_groups(
    runner: RolloutRunner,
    tasks: Sequence[Task],
    group_size: int,
    seed: int,
    label: str,
    extra: int,
) -> list[Group]:
    """The first `group_size` graded episodes of each task, of `extra` more that are begun:
    `oversample`."""
    groups = new_groups(tasks, group_size + extra, seed, label)
    groups = await oversample(runner, groups, group_size)
    runner.check_ungraded([member for group in groups for member in group.trajectories])
    return groups
