"""A judge's numbers as the rewards of groups, and the pairs that are made of them."""

import asyncio
import json
from collections.abc import Sequence

from judging_library import asker, episode, parts
from turnwise.types import Group, Outcome
from turnwise_judges.base import Message
from turnwise_judges.pairwise import PairwiseJudge
from turnwise_judges.section import regraded


def longer(messages: Sequence[Message]) -> str:
    data, _, example = parts(messages)
    first, second = (json.loads(data)[which]["answer"] for which in ("first", "second"))
    better = "first" if len(first) > len(second) else "second"
    return json.dumps(json.loads(example) | {"better": better})


class Numbers:
    """Known numbers."""

    def __init__(self, *numbers: float | None) -> None:
        self.numbers = numbers

    async def measure(self, group: Group) -> Sequence[float | None]:
        assert len(group.graded) == len(self.numbers)
        return self.numbers


def test_rewards_are_the_judges_and_success_is_the_verifiers() -> None:
    group = Group("g", tuple(episode("a" * (n + 1), number=n, reward=1.0 - n) for n in range(2)))
    (found,) = asyncio.run(regraded([group], PairwiseJudge(asker(longer))))
    assert [member.reward for member in found.trajectories] == [0.0, 1.0]
    assert [member.outcome for member in found.trajectories] == [Outcome.SUCCESS, Outcome.FAILURE]
    assert [member.reward for member in group.trajectories] == [1.0, 0.0]


def test_a_missing_judgement_leaves_its_member_ungraded() -> None:
    members = (
        episode(number=0),
        episode(number=1, reward=None),
        episode(number=2),
        episode(number=3),
    )
    (found,) = asyncio.run(regraded([Group("g", members)], Numbers(0.25, None, 0.75)))
    assert [member.reward for member in found.trajectories] == [0.25, None, None, 0.75]
    assert found.trajectories[1] == members[1]
    assert found.trajectories[2].outcome == Outcome.GRADER_ERROR
    assert "missing" in found.trajectories[2].problem
