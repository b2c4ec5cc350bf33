"""Baselines per token: against the formula written out, its meaning, and degenerate cases.

That the own sample in the baseline makes it biased: test_unbiasedness.py.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.algorithms.declared import functions
from tests.algorithms.random_episodes import groups
from turnwise.algorithms import make_algorithm
from turnwise.algorithms.estimators import EstimatorInput
from turnwise_algorithms.token_baselines import otb

ESTIMATORS = functions("estimator")


def sampled(numbers: np.ndarray | None, episode: EstimatorInput) -> list[float]:
    return [float(x) for x, there in zip(numbers, episode.mask, strict=True) if there]


def by_hand(group: list[EstimatorInput]) -> list[list[float]]:
    """Of each episode's sampled tokens, number by number."""
    left, weight = [], []
    for episode in group:
        rewards = sampled(episode.rewards_by_token(), episode)
        norms = sampled(episode.score_norms, episode)
        left.append([sum(rewards[t:]) for t in range(len(rewards))])
        weight.append([sum(norms[: t + 1]) for t in range(len(norms))])
    found = []
    for own in left:
        row = []
        for t, mine in enumerate(own):
            there = [i for i in range(len(group)) if t < len(left[i])]
            baseline = mine
            if len(there) > 1:
                total = sum(weight[i][t] for i in there)
                baseline = sum(left[i][t] * weight[i][t] for i in there) / total
            row.append(mine - baseline)
        found.append(row)
    return found


@given(groups())
def test_it_is_the_formula(group: list[EstimatorInput]) -> None:
    """With episodes of unequal lengths: who has ended is in no later baseline."""
    for episode, row, expected in zip(group, otb(group), by_hand(group), strict=True):
        assert row[episode.mask].tolist() == pytest.approx(expected, abs=1e-9)
        assert not row[~episode.mask].any()
    ((*credits,),) = ESTIMATORS["otb"]([group])
    for credit, row in zip(credits, otb(group), strict=True):
        np.testing.assert_array_equal(credit.advantages, row)


@given(groups(), st.integers(0, 2**32))
def test_rewards_of_tokens_count_from_where_they_stand(
    group: list[EstimatorInput], seed: int
) -> None:
    generator = np.random.default_rng(seed)
    given_group = []
    for episode in group:
        rewards = np.where(episode.mask, generator.normal(size=len(episode.mask)), np.nan)
        given_group.append(replace(episode, token_rewards=rewards))
    rows = zip(given_group, otb(given_group), by_hand(given_group), strict=True)
    for episode, row, expected in rows:
        assert row[episode.mask].tolist() == pytest.approx(expected, abs=1e-9)


@given(groups(), st.integers(0, 2**32))
def test_order_and_masked_tokens_do_not_matter(group: list[EstimatorInput], seed: int) -> None:
    generator = np.random.default_rng(seed)
    order = generator.permutation(len(group))
    found = otb(group)
    for place, row in zip(order, otb([group[place] for place in order]), strict=True):
        np.testing.assert_allclose(row, found[place], atol=1e-9)
    changed = []
    for episode in group:
        norms = np.where(episode.mask, episode.score_norms, np.nan)
        changed.append(replace(episode, score_norms=norms))
    for row, expected in zip(otb(changed), found, strict=True):
        np.testing.assert_array_equal(row, expected)


def episode(reward: float, norms: list[float], mask: list[bool] | None = None) -> EstimatorInput:
    mask = mask or [True] * len(norms)
    return EstimatorInput(
        shaped_reward=reward,
        turn=np.zeros(len(mask), np.int32),
        mask=np.array(mask, np.bool_),
        score_norms=np.array(norms),
    )


def test_observations_in_between_shift_nothing() -> None:
    """The second token that was sampled is compared with the second that was sampled."""
    spread = episode(1.0, [0.5, 9.0, 1.0], [True, False, True])
    plain = episode(0.0, [1.5, 0.5])
    first, second = otb([spread, plain])
    assert first.tolist() == pytest.approx([1 - 0.5 / 2, 0, 1 - 1.5 / 3.5])
    assert second.tolist() == pytest.approx([-0.5 / 2, -1.5 / 3.5])


def test_the_tail_of_the_longest_compares_nothing() -> None:
    first, second = otb([episode(1.0, [1.0, 1.0, 1.0]), episode(0.0, [1.0])])
    assert first.tolist() == [0.5, 0.0, 0.0]
    assert second.tolist() == [-0.5]


@given(groups(sizes=(1, 1)))
def test_a_group_of_one_compares_nothing(group: list[EstimatorInput]) -> None:
    (row,) = otb(group)
    assert not row.any()


@given(st.floats(-9, 9), st.lists(st.lists(st.floats(0, 2), max_size=5), min_size=1, max_size=5))
def test_equal_rewards_give_exactly_zero(reward: float, norms: list[list[float]]) -> None:
    for row in otb([episode(reward, own) for own in norms]):
        assert not row.any()


def test_certain_tokens_nothing_sampled_and_a_first_token_without_a_norm() -> None:
    """Where no gradient is, none is made up."""
    certain = [episode(1.0, [0.0, 0.0]), episode(0.0, [0.0])]
    assert not np.concatenate(otb(certain)).any()
    silent = episode(5.0, [1.0], [False])
    first, second, third = otb([silent, episode(1.0, [np.nan, 1.0]), episode(0.0, [2.0, 0.0])])
    assert first.tolist() == [0.0]
    assert second.tolist() == pytest.approx([1.0, 1 - 1 / 3])
    assert third.tolist() == pytest.approx([0.0, -1 / 3])
    assert otb([]) == []


def test_its_baseline_has_the_least_variance() -> None:
    """Of one token: E|g|^2 (G - b)^2 over many samples is smallest at b = the baseline."""
    generator = np.random.default_rng(0)
    rewards, norms = generator.random(400), generator.random(400)
    group = [episode(float(r), [float(n)]) for r, n in zip(rewards, norms, strict=True)]
    baseline = rewards[0] - otb(group)[0][0]
    spread = [
        float(norms @ (rewards - b) ** 2) for b in (baseline, baseline - 0.01, rewards.mean())
    ]
    assert spread[0] < min(spread[1:])


def test_without_score_norms_it_says_so() -> None:
    with pytest.raises(ValueError, match="score norms"):
        otb([EstimatorInput(1.0, np.zeros(1, np.int32), np.array([True]))])
    assert make_algorithm("otb", {}).needs == {"score_norms"}
