"""Ways to play a step's groups, by name, for algorithms that need more than independent episodes.

Each function gives one group for each task.

Next: `rollout/runner.py`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from turnwise.algorithms.parts import part
from turnwise.rollout.runner import RolloutRunner, members_of, new_groups
from turnwise.types import Group, Outcome, Task

Rollout = Callable[..., Awaitable[list[Group]]]
"""(runner, tasks, group size, seed, label, **numbers) -> groups; the run's seed and the label of
the occasion determine every random number. RunStoppedError for too many ungraded episodes."""


independent = part("rollout", "independent", "each episode from the beginning, by itself")(
    RolloutRunner.collect
)


async def oversampled_groups(
    runner: RolloutRunner, tasks: Sequence[Task], group_size: int, seed: int, label: str, extra: int
) -> list[Group]:
    """Play each task until `group_size` episodes, of `extra` more, have a grade; cancel the others,
    which are the group's `oversampled`.

    Those that ended without a grade until then remain members, in their order; a group with fewer
    graded ones keeps what it has. Short episodes and those with quick tools come first: rewards,
    baselines and lengths are biased where length has to do with success, so it is for tools whose
    slowness says nothing of the policy. `max_staleness` hides slow episodes without that bias.
    """
    size = group_size + extra
    async with asyncio.TaskGroup() as playing:
        running = [
            playing.create_task(_oversampled(runner, group, group_size, place * size))
            # place * size: each group's sessions have numbers of their own.
            for place, group in enumerate(new_groups(tasks, size, seed, label))
        ]
    groups = [task.result() for task in running]
    runner.check_ungraded(members_of(groups))
    return groups


async def _oversampled(runner: RolloutRunner, group: Group, wanted: int, first: int) -> Group:
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
