"""Groups, one for each task, with episodes beside them, only to judge their members by."""

from collections.abc import Sequence
from dataclasses import replace

from turnwise.algorithms.parts import Requirement, part
from turnwise.conflicts import Need
from turnwise.ranges import Count
from turnwise.rollout.runner import RolloutRunner, new_groups, new_member
from turnwise.types import Group, Task
from turnwise_algorithms.branching import play_on_from_every_turn


@part("rollout", "greedy", conditions=[Need.SINGLE_REWARDS], gives=[Requirement.GREEDY])
async def greedy(
    runner: RolloutRunner, tasks: Sequence[Task], group_size: int, seed: int, label: str
) -> list[Group]:
    """Groups, and beside each an episode at temperature 0: the baseline (ReMax, arXiv
    2310.10505)."""
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
