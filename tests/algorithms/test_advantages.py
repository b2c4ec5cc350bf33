"""Estimators against the formulas written out in plain Python, and their degenerate cases."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.algorithms.advantages import (
    ESTIMATORS,
    GROUP_FILTERS,
    Estimator,
    dr_grpo,
    grpo,
    reinforce,
    rloo,
    token_advantages,
)

COMPARING = [grpo, dr_grpo, rloo]
REWARDS = st.lists(st.floats(-10, 10, allow_subnormal=False), min_size=2, max_size=9)


@given(REWARDS)
def test_estimators_match_their_formulas(rewards: list[float]) -> None:
    n = len(rewards)
    mean = math.fsum(rewards) / n
    std = math.sqrt(math.fsum((r - mean) ** 2 for r in rewards) / (n - 1))
    array = np.array(rewards)
    others = [math.fsum(rewards[:i] + rewards[i + 1 :]) / (n - 1) for i in range(n)]
    expected = [r - mean for r in rewards]
    np.testing.assert_allclose(dr_grpo(array), expected, atol=1e-12)
    np.testing.assert_allclose(grpo(array), np.array(expected) / (std + 1e-6), atol=1e-8)
    np.testing.assert_allclose(rloo(array), array - others, atol=1e-12)
    np.testing.assert_array_equal(reinforce(array), rewards)


def test_grpo_on_a_worked_example() -> None:
    # mean 0.25, std (n-1) 0.5
    np.testing.assert_allclose(
        grpo(np.array([1.0, 0.0, 0.0, 0.0])), [1.5, -0.5, -0.5, -0.5], rtol=1e-5
    )


@pytest.mark.parametrize("estimator", COMPARING)
def test_a_group_of_one_teaches_nothing(estimator: Estimator) -> None:
    np.testing.assert_array_equal(estimator(np.array([1.0])), [0.0])


@pytest.mark.parametrize("estimator", COMPARING)
def test_equal_rewards_are_exactly_zero(estimator: Estimator) -> None:
    # The mean of ten times 0.1 is not 0.1 in floating point.
    for value, count in ((0.1, 10), (1 / 3, 7), (1.0, 8), (-0.7, 3)):
        np.testing.assert_array_equal(estimator(np.full(count, value)), np.zeros(count))


@pytest.mark.parametrize("estimator", ESTIMATORS.values(), ids=list(ESTIMATORS))
def test_an_empty_group_has_no_advantages(estimator: Estimator) -> None:
    assert estimator(np.empty(0)).shape == (0,)


@pytest.mark.parametrize("estimator", ESTIMATORS.values(), ids=list(ESTIMATORS))
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_reward_that_is_no_number_raises(estimator: Estimator, bad: float) -> None:
    with pytest.raises(ValueError, match="reward 1 of the group"):
        estimator(np.array([0.0, bad, 1.0]))
    with pytest.raises(ValueError, match="reward 0 of the group"):
        estimator(np.array([bad]))


@pytest.mark.parametrize("estimator", ESTIMATORS.values(), ids=list(ESTIMATORS))
def test_the_rewards_are_left_as_they_were(estimator: Estimator) -> None:
    rewards = np.array([1.0, 0.0, 0.5])
    result = estimator(rewards)
    result += 1
    np.testing.assert_array_equal(rewards, [1.0, 0.0, 0.5])


def test_filters() -> None:
    for rewards, informative in (([1, 1], False), ([0.5], False), ([0, 1], True), ([], False)):
        array = np.array(rewards, np.float64)
        assert GROUP_FILTERS["all_equal"](array) is informative
        assert GROUP_FILTERS["none"](array) is True


def test_token_advantages_are_zero_where_nothing_was_sampled() -> None:
    result = token_advantages(-0.3, np.array([False, True, False, True]))
    assert result.dtype == np.float32
    np.testing.assert_array_equal(result, np.array([0, -0.3, 0, -0.3], np.float32))
