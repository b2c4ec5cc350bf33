"""Credit for turns: against the formulas written out, and in degenerate cases."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.algorithms.random_episodes import groups
from turnwise.algorithms.estimators import EstimatorInput
from turnwise.algorithms.turns import turn_returns, turn_rloo

DISCOUNTS = st.floats(0, 1)


def episode(reward: float, turns: int) -> EstimatorInput:
    """Turns of a token each, with an outcome alone."""
    return EstimatorInput(reward, np.arange(turns, dtype=np.int32), np.ones(turns, np.bool_))


@given(groups(), DISCOUNTS)
def test_returns_are_sums_of_what_comes(group: list[EstimatorInput], discount: float) -> None:
    for member in group:
        rewards = member.rewards_by_turn()
        for k, found in enumerate(turn_returns(member, discount)):
            expected = sum(
                discount ** (later - k) * r for later, r in enumerate(rewards) if later >= k
            )
            assert found == pytest.approx(expected, abs=1e-9)


@given(groups((2, 5)), DISCOUNTS)
def test_turn_rloo_compares_with_the_others_at_that_turn(
    group: list[EstimatorInput], discount: float
) -> None:
    returns = [turn_returns(member, discount) for member in group]
    for index, found in enumerate(turn_rloo(group, discount)):
        for turn, value in enumerate(found):
            others = [
                row[turn] if turn < len(row) else row[-1]
                for place, row in enumerate(returns)
                if place != index
            ]
            assert value == pytest.approx(returns[index][turn] - np.mean(others), abs=1e-9)


def test_a_group_of_one_and_an_all_equal_group_teach_nothing() -> None:
    for group in ([episode(0.7, 2)], [episode(0.1, 3)] * 10):
        for row in turn_rloo(group, 0.9):
            np.testing.assert_array_equal(row, np.zeros(len(row)))
