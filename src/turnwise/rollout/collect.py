"""Ways to play a step's groups, by name, for algorithms that need more than independent episodes.

Each function gives one group for each task.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from turnwise.algorithms.parts import Requirement, part
from turnwise.conflicts import Need
from turnwise.ranges import Count
from turnwise.rollout.branching import play_on_from_every_turn
from turnwise.rollout.oversampling import oversample
from turnwise.rollout.runner import RolloutRunner, new_groups, new_member
from turnwise.types import Group, Task

Rollout = Callable[..., Awaitable[list[Group]]]
"""(runner, tasks, group size, seed, label, **numbers) -> groups.

The run's seed and the label, which names the occasion, determine every random number. Raises
RunStoppedError when too many episodes are ungraded.
"""


independent = part("rollout", "independent", "each episode from the beginning, by itself")(
    RolloutRunner.collect
)


@part(
    "rollout",
    "greedy",
    "and one at temperature 0 beside each group (arXiv 2310.10505)",
    conditions=[Need.SINGLE_REWARDS],
    gives=[Requirement.GREEDY],
)
async def greedy(
    runner: RolloutRunner, tasks: Sequence[Task], group_size: int, seed: int, label: str
) -> list[Group]:
    """Play groups, and beside each one episode at temperature 0, whose reward is the members'
    baseline.

    Source: ReMax (arXiv 2310.10505).
    """
    groups = await runner.play_groups(new_groups(tasks, group_size, seed, label))
    planned = [
        new_member(task, group.id, group_size, seed, label)
        for task, group in zip(tasks, groups, strict=True)
    ]
    cold = replace(runner, limits=runner.limits.unlearned(0.0))
    beside = await cold.play([(episode, None) for episode in planned])
    runner.check_ungraded([m for group in groups for m in group.trajectories] + beside)
    return [
        replace(group, baseline_rollouts=(own,)) for group, own in zip(groups, beside, strict=True)
    ]


@part(
    "rollout",
    "turn_replays",
    "so many others beside each episode from before each of its turns",
    needs=[Requirement.RESTORABLE],
    conditions=[Need.OWN_LOOP, Need.ONE_CONTEXT, Need.SINGLE_REWARDS],
    gives=[Requirement.TURN_VALUES],
)
async def turn_replays(
    runner: RolloutRunner,
    tasks: Sequence[Task],
    group_size: int,
    seed: int,
    label: str,
    replays: Count = 4,
) -> list[Group]:
    """Each episode by itself, and beside each graded one `replays` others from before each of its
    turns, whose mean rewards are the values of its turns."""
    groups = await replace(runner, snapshots=True).collect(tasks, group_size, seed, label)
    members = [member for group in groups for member in group.graded]
    beside = replace(runner, limits=runner.limits.unlearned(runner.limits.temperature))
    played = await play_on_from_every_turn(beside, members, replays, seed, f"{label}/replays")
    rows = iter(played)
    return [
        replace(
            group,
            baseline_rollouts=tuple(
                one for _ in group.graded for turn in next(rows) for one in turn
            ),
        )
        for group in groups
    ]


async def oversampled_groups(
    runner: RolloutRunner,
    tasks: Sequence[Task],
    group_size: int,
    seed: int,
    label: str,
    extra: int,
) -> list[Group]:
    """The first `group_size` episodes of each task that have a grade, of `extra` more that are
    begun; see `oversample`. Asked for by a recipe, not by an algorithm."""
    groups = new_groups(tasks, group_size + extra, seed, label)
    groups = await oversample(runner, groups, group_size)
    runner.check_ungraded([member for group in groups for member in group.trajectories])
    return groups
