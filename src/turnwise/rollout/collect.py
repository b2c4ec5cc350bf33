"""Ways to play a step's groups, by name, for algorithms that need more than independent episodes.

Each function gives one group for each task.

Next: `rollout/runner.py`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from turnwise.algorithms.parts import part
from turnwise.rollout.runner import RolloutRunner, new_groups
from turnwise.types import Group, Outcome, Task

Rollout = Callable[..., Awaitable[list[Group]]]
"""(runner, tasks, group size, seed, label, **numbers) -> groups; the run's seed and the label of
the occasion determine every random number. RunStoppedError for too many ungraded episodes."""


independent = part("rollout", "independent", "each episode from the beginning, by itself")(
    RolloutRunner.collect
)


async def oversample(runner: RolloutRunner, groups: Sequence[Group], wanted: int) -> list[Group]:
    """Play each group until `wanted` members have a grade; cancel the others, its `oversampled`.

    Those that ended without a grade until then remain members, in their order; a group with fewer
    graded ones keeps what it has. Short episodes and those with quick tools come first: rewards,
    baselines and lengths are biased where length has to do with success, so it is for tools whose
    slowness says nothing of the policy. `max_staleness` hides slow episodes without that bias.
    """
    async with asyncio.TaskGroup() as tasks:
        running = []
        first = 0
        for group in groups:
            running.append(tasks.create_task(_oversample_group(runner, group, wanted, first)))
            first += len(group.trajectories)
    return [task.result() for task in running]


async def _oversample_group(runner: RolloutRunner, group: Group, wanted: int, first: int) -> Group:
    """One group; its members' numbers begin with `first`."""
    episodes = [
        runner.episode(first + place, member) for place, member in enumerate(group.trajectories)
    ]
    running = {asyncio.create_task(episode.run()): episode for episode in episodes}
    finished: set[int] = set()
    graded = 0
    try:
        while running and graded < wanted:
            done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            # A set has no order: of those that end at once the lowest numbers count.
            for task in sorted(done, key=lambda task: running[task].planned.episode):
                del running[task]
                played = task.result()  # a bug ends the run
                if graded < wanted:
                    finished.add(played.episode)
                    graded += played.reward is not None
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)  # environments are closed
    for episode in running.values():
        # One that was cancelled while it was graded has an outcome.
        episode.outcome, episode.verdict = Outcome.CANCELLED, None
    ended = [episode.trajectory for episode in episodes]
    return replace(
        group,
        trajectories=tuple(member for member in ended if member.episode in finished),
        oversampled=tuple(member for member in ended if member.episode not in finished),
    )


async def oversampled_groups(
    runner: RolloutRunner, tasks: Sequence[Task], group_size: int, seed: int, label: str, extra: int
) -> list[Group]:
    """The first `group_size` graded episodes of each task, of `extra` more: `oversample`."""
    groups = new_groups(tasks, group_size + extra, seed, label)
    groups = await oversample(runner, groups, group_size)
    runner.check_ungraded([member for group in groups for member in group.trajectories])
    return groups
