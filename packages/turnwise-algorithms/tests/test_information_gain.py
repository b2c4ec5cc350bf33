"""Credit from information gain: against the formulas written out, and in degenerate cases."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.algorithms.random_episodes import groups
from tests.algorithms.test_turns import episode, z_score
from turnwise.algorithms.estimators import EstimatorInput
from turnwise_algorithms.information_gain import information_gain


def gained(reward: float, gains: list[float]) -> EstimatorInput:
    made = episode(reward, None, turns=len(gains) + 1)
    return replace(made, information_gains=np.array(gains))


def test_information_gain_by_hand() -> None:
    """IGPO (arXiv 2510.14967): z-scores, then sums of what comes; apart, and all together."""
    group = [gained(1.0, [0.2, 0.4]), gained(0.0, [0.1]), gained(0.5, [])]
    gains, outcome = z_score([0.2, 0.4, 0.1]), z_score([1, 0, 0.5])
    together = z_score([0.2, 0.4, 0.1, 1, 0, 0.5])
    for separate, scores in ((1, [*gains, *outcome]), (0, together)):
        g, o = scores[:3], scores[3:]
        found = information_gain(group, 0.5, separate)
        second = g[1] + 0.5 * o[0]
        np.testing.assert_allclose(found[0], [g[0] + 0.5 * second, second, o[0]], atol=1e-9)
        np.testing.assert_allclose(found[1], [g[2] + 0.5 * o[1], o[1]], atol=1e-9)
        np.testing.assert_allclose(found[2], [o[2]], atol=1e-9)


def test_rewards_of_turns_are_part_of_the_outcome_of_information_gain() -> None:
    group = [gained(0.0, [0.0]), gained(0.0, [0.0])]
    group[0] = replace(group[0], turn_rewards=np.array([1.0, 0.0]))
    expected = [[0.70711] * 2, [-0.70711] * 2]
    np.testing.assert_allclose(information_gain(group, 1.0, 1), expected, atol=1e-4)


def test_gains_that_are_missing_are_told() -> None:
    with pytest.raises(ValueError, match="information gains"):
        information_gain([episode(1.0, None, turns=2)], 1.0, 1)


def test_a_group_of_one_and_an_all_equal_group_teach_nothing() -> None:
    for group in ([episode(0.7, None, turns=2)], [episode(0.1, None, turns=3)] * 10):
        measured = [replace(e, information_gains=np.zeros(e.turns - 1)) for e in group]
        for row in information_gain(measured, 1.0, 1):
            np.testing.assert_array_equal(row, np.zeros(len(row)))


@pytest.mark.long
@given(groups((2, 5)), st.randoms(), st.sampled_from([0, 1]))
def test_the_order_of_the_group_does_not_matter(
    group: list[EstimatorInput], random: object, separate: int
) -> None:
    order = list(range(len(group)))
    random.shuffle(order)  # type: ignore[attr-defined]
    plain = information_gain(group, 0.9, separate)
    shuffled = information_gain([group[index] for index in order], 0.9, separate)
    for place, index in enumerate(order):
        np.testing.assert_allclose(shuffled[place], plain[index], atol=1e-8)
