"""Outcome estimators against the formulas written out in plain Python, and degenerate cases."""

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.algorithms.outcome_advantages import dr_grpo, grpo, max_rl, opo, pass_at_k, rloo
from turnwise.errors import ConfigError

COMPARING = [grpo, dr_grpo, rloo, max_rl]
REWARDS = st.lists(st.floats(-10, 10, allow_subnormal=False), min_size=2, max_size=9)
BITS = st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=9)
Estimator = Callable[[np.ndarray], np.ndarray]


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


@given(BITS, st.integers(1, 6))
def test_pass_at_k_is_the_average_over_all_subsets(rewards: list[float], k: int) -> None:
    """GRPO over subsets, in exact fractions: a subset's reward is that of its best member."""
    subsets = list(combinations(range(len(rewards)), k))
    found = pass_at_k(np.array(rewards), k)
    best = [Fraction(max(rewards[i] for i in subset)) for subset in subsets]
    if not subsets or len(set(best)) == 1:
        np.testing.assert_array_equal(found, np.zeros(len(rewards)))
        return
    mean = sum(best) / len(best)
    std = math.sqrt(mean * (1 - mean))
    for index, value in enumerate(found):
        own = [
            reward - mean for subset, reward in zip(subsets, best, strict=True) if index in subset
        ]
        assert value == pytest.approx(float(sum(own) / len(own)) / std)


@given(REWARDS)
def test_max_rl_and_opo_match_their_formulas(rewards: list[float]) -> None:
    array = np.abs(np.array(rewards))
    lengths = np.arange(1.0, len(array) + 1)
    mean = math.fsum(array) / len(array)
    weighted = math.fsum(array * lengths) / math.fsum(lengths)
    equal = array.min() == array.max()
    relative = np.zeros(len(array)) if equal else (array - mean) / mean
    np.testing.assert_allclose(max_rl(array), relative, atol=1e-12)
    centred = np.zeros(len(array)) if equal else array - weighted
    np.testing.assert_allclose(opo(array, lengths), centred, atol=1e-12)


def test_what_an_estimator_cannot_take_raises() -> None:
    with pytest.raises(ConfigError, match="one is -1: choose"):
        max_rl(np.array([1.0, -1.0]))
    with pytest.raises(ConfigError, match=r"one is 0\.5: choose"):
        pass_at_k(np.array([0.5, 1.0]), 2)


@pytest.mark.parametrize("estimator", COMPARING)
def test_equal_rewards_and_a_group_of_one_are_exactly_zero(estimator: Estimator) -> None:
    # The mean of ten times 0.1 is not 0.1 in floating point.
    for value, count in ((0.1, 10), (1 / 3, 7), (1.0, 8), (1.0, 1)):
        np.testing.assert_array_equal(estimator(np.full(count, value)), np.zeros(count))


@pytest.mark.parametrize("estimator", COMPARING)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_reward_that_is_no_number_raises(estimator: Estimator, bad: float) -> None:
    with pytest.raises(ValueError, match="reward 1 of the group is"):
        estimator(np.array([0.0, bad, 1.0]))
