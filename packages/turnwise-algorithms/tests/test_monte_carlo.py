"""Advantages from episodes played beside the group: formulas, and what is missing."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.algorithms.declared import functions
from tests.algorithms.random_episodes import groups
from turnwise.algorithms.estimators import EstimatorInput
from turnwise_algorithms.monte_carlo import counterfactual, remax

ESTIMATORS = functions("estimator")


def episode(
    reward: float, turns: int, baseline: float | None = None, values: list[float] | None = None
) -> EstimatorInput:
    return EstimatorInput(
        reward,
        np.arange(turns, dtype=np.int32),
        np.ones(turns, np.bool_),
        baseline=baseline,
        turn_values=None if values is None else np.array(values),
    )


@given(groups())
def test_remax_is_the_reward_less_the_greedy_one(group: list[EstimatorInput]) -> None:
    for member, number in zip(group, remax(group), strict=True):
        expected = member.shaped_reward + sum(member.turn_rewards) - member.baseline
        assert number == pytest.approx(expected, abs=1e-12)


def test_remax_of_one_and_of_an_all_equal_group() -> None:
    np.testing.assert_array_equal(remax([episode(1.0, 2, 0.25)]), [0.75])
    np.testing.assert_array_equal(remax([episode(0.1, 2, 0.1)] * 3), np.zeros(3))


def test_a_greedy_episode_without_a_grade_is_no_baseline() -> None:
    """Not even one of 0: nothing is learned from the group."""
    ungraded, graded = [episode(1.0, 1, np.nan)], [episode(1.0, 1, 0.0)]
    (first,), (second,) = ESTIMATORS["remax"]([ungraded, graded])
    np.testing.assert_array_equal(first.advantages, [0.0])
    np.testing.assert_array_equal(second.advantages, [1.0])


@given(st.lists(st.floats(-3, 3), min_size=2, max_size=6), st.data())
def test_counterfactual_advantages_are_differences(
    values: list[float], data: st.DataObject
) -> None:
    """Together what the whole episode changed, whichever values are missing."""
    missing = data.draw(st.sets(st.integers(0, len(values) - 2)))
    given_values = [np.nan if turn in missing else v for turn, v in enumerate(values)]
    (found,) = counterfactual([episode(values[-1], len(values) - 1, values=given_values)])
    filled = list(given_values)
    for turn in reversed(range(len(values) - 1)):
        filled[turn] = filled[turn + 1] if np.isnan(filled[turn]) else filled[turn]
    expected = [after - before for before, after in pairwise(filled)]
    np.testing.assert_allclose(found, expected, atol=1e-12)
    assert all(found[turn] == 0 for turn in missing)


def test_a_turn_without_room_to_sample_is_no_turn_of_the_policy() -> None:
    (found,) = counterfactual([episode(0.0, 1, values=[0.5, 0.2, 0.0])])
    np.testing.assert_allclose(found, [-0.3])


def test_what_was_not_played_is_told() -> None:
    with pytest.raises(ValueError, match="greedy episode"):
        remax([episode(1.0, 1, 0.0), episode(1.0, 1)])
    with pytest.raises(ValueError, match="nothing was played on"):
        counterfactual([episode(1.0, 1)])
