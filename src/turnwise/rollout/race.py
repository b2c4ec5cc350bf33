"""More episodes than are needed, so that no group waits for its slowest.

The first to finish are the short ones and those whose tools were quick: what is kept is not a fair
sample of the policy. Where length has to do with success, rewards, baselines and lengths are
biased, and the policy is drawn towards short episodes. It is for tools whose slowness says nothing
of the policy. `max_staleness` hides slow episodes without that bias. Not here: which groups.
"""

import asyncio
from collections.abc import Sequence

from turnwise.rollout.groups import Roller
from turnwise.types import Group, Outcome, Trajectory


async def first_graded(roller: Roller, groups: Sequence[Group], wanted: int) -> None:
    """Play all members of each group until `wanted` of them have a grade; cancel the others.

    Those with a grade, and those that ended without one until then, remain members, in their order;
    what is left is the group's `spare`. A group that has fewer than `wanted` graded ones in the end
    keeps what it has.
    """
    async with asyncio.TaskGroup() as races:
        first = 0
        for group in groups:
            races.create_task(_race(roller, group, wanted, first))
            first += len(group.trajectories)


async def _race(roller: Roller, group: Group, wanted: int, first: int) -> None:
    """One group; its members' numbers on the occasion begin with `first`."""
    running = {
        asyncio.create_task(roller.play_one(first + place, member, None)): member
        for place, member in enumerate(group.trajectories)
    }
    finished: list[Trajectory] = []
    graded = 0
    try:
        while running and graded < wanted:
            done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in sorted(done, key=lambda task: running[task].episode):
                member = running.pop(task)
                task.result()  # a bug ends the run
                if graded < wanted:
                    finished.append(member)
                    graded += member.reward is not None
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    for member in running.values():
        member.outcome, member.verdict = Outcome.CANCELLED, None
    kept = {member.episode for member in finished}
    group.spare = [member for member in group.trajectories if member.episode not in kept]
    group.trajectories = [member for member in group.trajectories if member.episode in kept]
