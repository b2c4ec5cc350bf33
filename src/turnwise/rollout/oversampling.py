"""More episodes than are needed, so that no group waits for its slowest.

The first to finish are the short ones and those whose tools were quick: what is kept is not a fair
sample of the policy. Where length has to do with success, rewards, baselines and lengths are
biased, and the policy is drawn towards short episodes. It is for tools whose slowness says nothing
of the policy.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from turnwise.rollout.runner import RolloutRunner
from turnwise.types import Group, Outcome


async def oversample(runner: RolloutRunner, groups: Sequence[Group], wanted: int) -> list[Group]:
    """Play each group until `wanted` members have a grade; cancel the others, its `oversampled`.

    Those that ended without a grade until then remain members, in their order. A group with fewer
    graded ones in the end keeps what it has.
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
            for task in sorted(done, key=lambda task: running[task].planned.episode):
                del running[task]
                played = task.result()  # a bug ends the run
                if graded < wanted:
                    finished.add(played.episode)
                    graded += played.reward is not None
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    for episode in running.values():
        episode.outcome, episode.verdict = Outcome.CANCELLED, None
    ended = [episode.trajectory for episode in episodes]
    return replace(
        group,
        trajectories=tuple(member for member in ended if member.episode in finished),
        oversampled=tuple(member for member in ended if member.episode not in finished),
    )
