"""The three forms of a judge, on small episodes whose answers decide."""

import json
import math
from collections.abc import Sequence
from typing import Any

import pytest

from judging_library import answering, asker, episode, group, longer, parts
from turnwise.errors import ConfigError, InfrastructureError
from turnwise.types import Group, Outcome
from turnwise_judges.base import Message
from turnwise_judges.models import example_reply
from turnwise_judges.pairwise import Better, PairwiseJudge, schedule
from turnwise_judges.pointwise import PointwiseJudge
from turnwise_judges.rubric import SELF_CRITIQUE, Criterion, RubricJudge
from turnwise_judges.section import regraded

BY_LENGTH = answering(lambda data: {"score": len(data["answer"])})


async def test_pointwise_scores() -> None:
    judge = PointwiseJudge(asker(BY_LENGTH), low=1, high=5)
    assert await judge.measure_one(episode("abc")) == 3.0
    scores = await judge.measure(group("a", "abcd", "abcdefgh"))
    assert scores == [1.0, 4.0, None], "out of the range is missing, not the best"
    with pytest.raises(InfrastructureError, match="not between 1 and 5"):
        await judge.measure_one(episode("abcdefgh"))
    assert judge.metrics()["judge/missing"] == 2


async def test_ungraded_members_are_not_judged() -> None:
    judge = PointwiseJudge(asker(BY_LENGTH))
    members = (episode("a", number=0), episode("ab", number=1, reward=None))
    assert await judge.measure(Group("g", members)) == [1.0]
    assert judge.asker.counts.calls == 1


CRITERIA = [
    Criterion("right", "The answer is tarfile.", 2),
    Criterion("short", "It is short."),
    Criterion("known", "It is known."),
]


def verdicts(data: Any) -> dict[str, Any]:
    right = "yes" if data["answer"] == "tarfile" else "no"
    return {"criteria": {"right": right, "short": "yes", "known": "cannot tell"}}


async def test_a_rubric_is_the_weight_that_holds() -> None:
    judge = RubricJudge(asker(answering(verdicts)), CRITERIA)
    assert await judge.measure(group("tarfile", "zipfile")) == [0.75, 0.25]
    assert judge.metrics()["judge/cannot_tell"] == 2
    assert judge.metrics()["judge/calls"] == 2, "all criteria are one call"


async def test_criteria_that_cannot_be_judged_do_not_count_for_the_agent() -> None:
    dark = RubricJudge(asker(example_reply), SELF_CRITIQUE)
    assert await dark.measure_one(episode()) == 0.0


@pytest.mark.parametrize(
    "criteria",
    [
        *([], [Criterion("a", "A."), Criterion("a", "B.")]),
        *([Criterion("a", "A.", weight)] for weight in (0, -1, math.inf, math.nan)),
    ],
)
def test_rubrics_from_which_no_score_follows(criteria: list[Criterion]) -> None:
    with pytest.raises(ConfigError, match="judge"):
        RubricJudge(asker(example_reply), criteria)


FIRST, SECOND, TIE = Better.FIRST, Better.SECOND, Better.TIE


@pytest.mark.parametrize(
    ("decide", "first", "second", "better", "disagreements", "bias"),
    [
        (longer, "a", "bb", SECOND, 0, 0.0),
        (longer, "aaa", "bb", FIRST, 0, 0.0),
        (longer, "cc", "bb", TIE, 0, 0.0),
        (lambda data: {"better": "first"}, "a", "bb", TIE, 1, 1.0),
        (lambda data: {"better": "second"}, "a", "bb", TIE, 1, -1.0),
        (
            lambda data: {"better": "first" if data["first"]["answer"] == "a" else "tie"},
            *("a", "bb", TIE, 1, 0.5),
        ),
    ],
    ids=["second", "first", "equals", "first place", "second place", "a win and a tie"],
)
async def test_both_orders_are_asked_and_a_preference_for_a_place_is_a_tie(
    decide: Any, first: str, second: str, better: Better, disagreements: int, bias: float
) -> None:
    judge = PairwiseJudge(asker(answering(decide)))
    found = await judge.compare(episode(first), episode(second, number=1))
    assert found.value is better
    metrics = judge.metrics()
    names = ("calls", "disagreements", "position_bias")
    assert [metrics[f"judge/{name}"] for name in names] == [2, disagreements, bias]


async def test_a_comparison_that_misses_one_order_is_missing() -> None:
    def script(messages: Sequence[Message]) -> str:
        data = json.loads(parts(messages)[0])
        return "?" if data["first"]["answer"] == "a" else answering(longer)(messages)

    judge = PairwiseJudge(asker(script))
    found = await judge.compare(episode("a"), episode("bb", number=1))
    assert found.value is None
    assert judge.places.comparisons == 0
    assert "judge/position_bias" not in judge.metrics(), "not measured is not 0"


async def test_win_rates_within_a_group() -> None:
    judge = PairwiseJudge(asker(answering(longer)))
    rates = await judge.measure(group("a", "bbb", "cc", "dd"))
    assert rates == [0.0, 1.0, 0.5, 0.5]
    assert judge.asker.counts.calls == 4 * 3
    assert sum(rates) == 2.0, "as many points as comparisons between others"


async def test_members_without_a_judged_comparison_have_no_rate() -> None:
    silent = PairwiseJudge(asker(lambda _: "?"))
    assert await silent.measure(group("a", "b")) == [None, None]
    judge = PairwiseJudge(asker(example_reply))
    assert await judge.measure(group("a")) == [None], "nothing to compare it with"
    assert await judge.measure(Group("g", ())) == []


async def test_missing_comparisons_are_left_out_of_the_rate() -> None:
    def script(messages: Sequence[Message]) -> str:
        data = json.loads(parts(messages)[0])
        answers = {data["first"]["answer"], data["second"]["answer"]}
        return "?" if answers == {"a", "bb"} else answering(longer)(messages)

    judge = PairwiseJudge(asker(script))
    assert await judge.measure(group("a", "bb", "ccc")) == [0.0, 0.0, 1.0]


@pytest.mark.parametrize("members", range(9))
@pytest.mark.parametrize("opponents", [1, 2, 3, 4, 7])
def test_each_member_has_its_opponents(members: int, opponents: int) -> None:
    pairs = schedule(members, opponents)
    assert len(set(pairs)) == len(pairs)
    assert all(0 <= one < other < members for one, other in pairs)
    for member in range(members):
        count = sum(member in pair for pair in pairs)
        assert min(opponents, members - 1) <= count <= max(opponents + 1, 0)


async def test_criteria_are_shown_after_the_data() -> None:
    asked: list[str] = []

    def script(messages: Sequence[Message]) -> str:
        asked.append(parts(messages)[1])
        return example_reply(messages)

    await RubricJudge(asker(script), SELF_CRITIQUE).measure_one(episode())
    assert all(f"{one.name}: {one.sentence}" in asked[0] for one in SELF_CRITIQUE)
    judge = PairwiseJudge(asker(script), SELF_CRITIQUE)
    await judge.compare(episode("a"), episode("b"))
    assert all(one.sentence in text for one in SELF_CRITIQUE for text in asked)
    assert len(asked) == 1 + 2


async def test_rewards_are_the_judges_and_success_is_the_verifiers() -> None:
    group = Group("g", tuple(episode("a" * (n + 1), number=n, reward=1.0 - n) for n in range(2)))
    (found,) = await regraded([group], PairwiseJudge(asker(answering(longer))))
    assert [member.reward for member in found.trajectories] == [0.0, 1.0]
    assert [member.outcome for member in found.trajectories] == [Outcome.SUCCESS, Outcome.FAILURE]
    assert [member.reward for member in group.trajectories] == [1.0, 0.0]


class Numbers:
    async def measure(self, group: Group) -> list[float | None]:
        assert [one.episode for one in group.graded] == [0, 2, 3]
        return [0.25, None, 0.75]


async def test_a_missing_judgement_leaves_its_member_ungraded() -> None:
    members = tuple(episode(number=n, reward=None if n == 1 else 1.0) for n in range(4))
    (found,) = await regraded([Group("g", members)], Numbers())
    assert [member.reward for member in found.trajectories] == [0.25, None, None, 0.75]
    assert found.trajectories[1] == members[1]
    assert found.trajectories[2].outcome == Outcome.GRADER_ERROR
    assert "missing" in found.trajectories[2].problem
