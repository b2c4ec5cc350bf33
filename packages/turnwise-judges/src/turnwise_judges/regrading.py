"""Groups whose rewards are a judge's: preference pairs by a model (RLAIF, arXiv 2309.00267)."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from turnwise.types import Group, Outcome, Trajectory


class GroupJudge(Protocol):
    """A judge of any form."""

    async def measure(self, group: Group) -> Sequence[float | None]:
        """A number for each graded member; None where it is missing."""
        ...


async def regraded(groups: Sequence[Group], judge: GroupJudge) -> list[Group]:
    """The groups with the judge's numbers as rewards, in place of all others; a member whose
    judgement is missing is ungraded. Success stays what the verifier found."""
    return list(await asyncio.gather(*(_regraded(group, judge) for group in groups)))


async def _regraded(group: Group, judge: GroupJudge) -> Group:
    numbers = iter(await judge.measure(group))
    members = [
        _with_reward(member, next(numbers)) if member.reward is not None else member
        for member in group.trajectories
    ]
    return replace(group, trajectories=tuple(members))


def _with_reward(member: Trajectory, reward: float | None) -> Trajectory:
    if reward is None:
        problem = "the judge: its judgement is missing"
        return replace(member, outcome=Outcome.GRADER_ERROR, problem=problem, verdict=None)
    assert member.verdict is not None  # it is graded
    verdict = replace(member.verdict, reward=reward, turn_rewards=())
    return replace(member, verdict=verdict)
