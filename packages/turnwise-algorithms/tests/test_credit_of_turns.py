"""Credit for turns by their rewards and states: the formulas written out, degenerate cases."""

from itertools import product

import numpy as np

from turnwise.algorithms.estimators import EstimatorInput
from turnwise_algorithms.turns import gigpo, mt_grpo

ESTIMATORS = (lambda group: mt_grpo(group, 0.9), lambda group: gigpo(group, 0.9, 1.0, True))


def episode(
    reward: float, turn_rewards: list[float] | None, states: list[str] | None = None, turns: int = 0
) -> EstimatorInput:
    count = turns or len(turn_rewards or [])
    return EstimatorInput(
        reward,
        np.arange(count, dtype=np.int32),
        np.ones(count, np.bool_),
        None if turn_rewards is None else np.array(turn_rewards),
        states=states,
    )


def z_score(numbers: list[float]) -> np.ndarray:
    array = np.array(numbers)
    if len(array) < 2 or array.min() == array.max():
        return np.zeros(len(array))
    return (array - array.mean()) / (array.std(ddof=1) + 1e-6)


def test_mt_grpo_with_two_turns_is_the_papers_formula() -> None:
    """arXiv 2505.11821, first version: A_0 = I + discount O, A_1 = O."""
    group = [episode(1.0, [0.5, 0]), episode(0.0, [0.1, 0]), episode(0.0, [0.9, 0])]
    process, outcome = z_score([0.5, 0.1, 0.9]), z_score([1, 0, 0])
    for row, first, last in zip(mt_grpo(group, 0.8), process, outcome, strict=True):
        np.testing.assert_allclose(row, [first + 0.8 * last, last], atol=1e-9)


def test_mt_grpo_takes_turns_that_were_not_made_for_zeros() -> None:
    """Three turns, two and one, with a discount of 0.5; by hand."""
    group = [episode(1.0, [0.4, 0.2, 0.1]), episode(0.0, [0.0, 0.3]), episode(0.5, [0.7])]
    first, second = z_score([0.4, 0.0, 0.0]), z_score([0.2, 0.0, 0.0])
    outcome, together = z_score([1.1, 0.3, 1.2]), z_score([1.7, 0.3, 1.2])
    found = mt_grpo(group, 0.5)
    o = outcome
    later = second[0] + o[0] / 2
    np.testing.assert_allclose(found[0], [first[0] + later / 2, later, o[0]], atol=1e-9)
    np.testing.assert_allclose(found[1], [first[1] + o[1] / 2, o[1]], atol=1e-9)
    np.testing.assert_allclose(found[2], [together[2]], atol=1e-9)


def test_mt_grpo_takes_an_episode_without_rewards_for_zeros() -> None:
    with_none = mt_grpo([episode(1.0, None, turns=2), episode(0.0, [0.3, 0.0])], 1.0)
    with_zeros = mt_grpo([episode(1.0, [0.0, 0.0]), episode(0.0, [0.3, 0.0])], 1.0)
    np.testing.assert_array_equal(with_none, with_zeros)
    none_at_all = mt_grpo([episode(1.0, None, turns=2), episode(0.0, None, turns=2)], 1.0)
    np.testing.assert_allclose(none_at_all, [[0.70711] * 2, [-0.70711] * 2], atol=1e-4)


def test_gigpo_by_hand() -> None:
    """Two episodes meet in state a; b and c are met once each and compare nothing."""
    group = [episode(1 - n, None, ["a", end], turns=2) for n, end in enumerate("bc")]
    whole, step = z_score([1.0, 0.0]), z_score([0.9, 0.0])
    found = gigpo(group, 0.9, 2.0, True)
    np.testing.assert_allclose(found[0], [whole[0] + 2 * step[0], whole[0]], atol=1e-9)
    np.testing.assert_allclose(found[1], [whole[1] + 2 * step[1], whole[1]], atol=1e-9)
    undivided = gigpo(group, 0.9, 2.0, False)
    np.testing.assert_allclose(undivided[0], [0.5 + 2 * 0.45, 0.5], atol=1e-9)


def test_a_state_met_again_in_one_episode_is_compared_too() -> None:
    found = gigpo([episode(1.0, [0.0, 0.0], ["a", "a"])], 0.5, 1.0, False)
    np.testing.assert_allclose(found[0], [-0.25, 0.25])


def test_a_group_of_one_and_an_all_equal_group_teach_nothing() -> None:
    alone = [episode(0.7, [0.0, 0.0], ["a", "b"])]
    equal = [episode(0.1, [0.0, 0.0, 0.0], ["a", "b", "c"])] * 10
    for group, estimator in product((alone, equal), ESTIMATORS):
        for row in estimator(group):
            np.testing.assert_array_equal(row, np.zeros(len(row)))
