"""Penalties: what they count, and what they leave as it was."""

import numpy as np
import pytest

from tests.learning.building import GRPO, make_groups, put, with_one
from turnwise.algorithms import make_algorithm
from turnwise.learning.credits import estimate
from turnwise.learning.selection import kept_groups
from turnwise.learning.signals.reward_terms import Penalty
from turnwise.tokens import Source
from turnwise.types import Trajectory

SHAPED = make_algorithm("grpo", {"reward_shaping": "overlong", "overlong_band": 0.5})
BUDGET = 12


def lengths(member: Trajectory) -> int:
    return int(member.tokens.mask.sum())


def test_the_penalty_counts_what_the_policy_sampled_and_the_reward_stays() -> None:
    groups = make_groups([[1.0, 1.0, 0.0, None], [0.5, None]])
    members = groups[0].graded
    assert len({lengths(m) for m in members}) > 1
    signals = Penalty(SHAPED, BUDGET).measure(groups)
    expected = [np.clip((lengths(m) - 6) / 6, 0, 1) for m in members]
    assert max(expected) > 0
    assert [signals.of(m).penalty for m in members] == pytest.approx(expected)
    assert [m.reward for m in groups[0].trajectories] == [1.0, 1.0, 0.0, None]
    assert signals.of(groups[0].trajectories[3]).penalty is None
    credits = estimate(groups, signals, SHAPED)
    shaped = np.array([1.0, 1.0, 0.0]) - expected
    advantages = (shaped - shaped.mean()) / (shaped.std(ddof=1) + 1e-6)
    for member, advantage in zip(members, advantages, strict=True):
        spread = np.where(member.tokens.mask, advantage, 0)
        np.testing.assert_allclose(credits.advantages[member.id], spread, atol=1e-5)
    single = signals.of(groups[1].trajectories[0]).penalty
    assert signals.metrics == {"reward/penalty": pytest.approx((sum(expected) + single) / 4)}


def test_what_was_sampled_before_a_branch_is_of_the_response() -> None:
    groups = make_groups([[1.0]])
    (member,) = groups[0].trajectories
    whole = Penalty(SHAPED, 10).measure(groups).of(member).penalty
    assert whole > 0
    sampled_first = (member.tokens.turn == 0) & member.tokens.mask
    branched = with_one(
        groups, 0, 0, source=put(member.tokens.source, sampled_first, Source.INHERITED)
    )
    assert Penalty(SHAPED, 10).measure(branched).of(member).penalty == whole


def test_groups_are_filtered_by_the_task_s_reward() -> None:
    """Dynamic sampling asks whether a task is solved always or never; lengths are no answer."""
    dapo = make_algorithm("dapo", {"overlong_band": 1.0})
    groups = make_groups([[1.0, 1.0, 1.0], [1.0, 0.0]])
    signals = Penalty(dapo, BUDGET).measure(groups)
    assert len({signals.of(member).penalty for member in groups[0].trajectories}) > 1
    assert [group.id for group in kept_groups(groups, dapo)] == ["g1"]


def test_an_algorithm_without_shaping_reports_nothing() -> None:
    groups = make_groups([[1.0, 0.0]])
    signals = Penalty(GRPO, 1).measure(groups)
    assert [signals.of(member).penalty for member in groups[0].trajectories] == [0.0, 0.0]
    assert signals.metrics == {}
    assert Penalty(SHAPED, 1).measure(make_groups([[None]])).metrics == {}
