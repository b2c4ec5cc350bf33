"""Advantage estimation against its definition as a sum."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.algorithms.random_episodes import groups
from turnwise.algorithms.estimators import EstimatorInput
from turnwise.algorithms.values import (
    bilevel_gae,
    explained_variance,
    length_adaptive_gae,
    token_gae,
    turn_gae,
)

SHARES = st.floats(0, 1)
ONE = groups((1, 1))


def by_definition(
    rewards: np.ndarray, values: np.ndarray, discount: float, decay: float
) -> np.ndarray:
    """The weighted sum of all later one-step errors, term by term."""
    later = [*values[1:], 0.0][: len(values)]
    errors = [r + discount * after - v for r, after, v in zip(rewards, later, values, strict=True)]
    return np.array(
        [
            sum((discount * decay) ** (k - t) * errors[k] for k in range(t, len(errors)))
            for t in range(len(errors))
        ]
    )


@given(ONE, SHARES, SHARES)
def test_token_gae_is_the_sum_of_errors_over_sampled_tokens(
    group: list[EstimatorInput], discount: float, decay: float
) -> None:
    """As in Search-R1: values and sums are carried over what is masked."""
    episode = group[0]
    found = token_gae(episode, discount, decay)
    rewards, mask, values = episode.rewards_by_token(), episode.mask, episode.values
    expected = by_definition(rewards[mask], values[mask], discount, decay)
    np.testing.assert_allclose(found.advantages[mask], expected, atol=1e-9)
    np.testing.assert_allclose(found.targets[mask], expected + values[mask], atol=1e-9)
    assert not found.advantages[~mask].any()
    assert np.isnan(found.targets[~mask]).all()


@given(ONE, SHARES, SHARES)
def test_turn_gae_is_one_step_per_turn(
    group: list[EstimatorInput], discount: float, decay: float
) -> None:
    episode = group[0]
    starts = [np.flatnonzero(episode.mask & (episode.turn == k))[0] for k in range(episode.turns)]
    values = episode.values[starts]
    expected = by_definition(episode.rewards_by_turn(), values, discount, decay)
    found = turn_gae(episode, discount, decay)
    np.testing.assert_allclose(
        found.advantages, np.where(episode.mask, expected[episode.turn], 0), atol=1e-9
    )
    targets = np.full(len(episode.mask), np.nan)
    targets[starts] = expected + values
    np.testing.assert_allclose(found.targets, targets, atol=1e-9)


@given(ONE, SHARES, SHARES, SHARES)
def test_bilevel_gae_is_turns_and_then_tokens(
    group: list[EstimatorInput], discount: float, decay: float, turn_discount: float
) -> None:
    episode = group[0]
    ends = [np.flatnonzero(episode.mask & (episode.turn == k))[-1] for k in range(episode.turns)]
    high = by_definition(episode.rewards_by_turn(), episode.values[ends], turn_discount, decay)
    found = bilevel_gae(episode, discount, decay, turn_discount)
    for turn in range(episode.turns):
        tokens = np.flatnonzero(episode.mask & (episode.turn == turn))
        rewards = np.zeros(len(tokens))
        rewards[-1] = high[turn] + episode.values[ends[turn]]
        expected = by_definition(rewards, episode.values[tokens], discount, decay)
        np.testing.assert_allclose(found.advantages[tokens], expected, atol=1e-9)


def test_the_decay_grows_with_length() -> None:
    """100 sampled tokens and alpha 0.05: decay 1 - 1/5; the critic's targets are full returns."""
    generator = np.random.default_rng(0)
    mask = np.ones(100, np.bool_)
    episode = EstimatorInput(1.0, np.zeros(100, np.int32), mask, values=generator.normal(size=100))
    found = length_adaptive_gae(episode, 1.0, 0.05)
    np.testing.assert_allclose(found.advantages, token_gae(episode, 1.0, 0.8).advantages)
    np.testing.assert_allclose(found.targets, np.ones(100))


def test_without_values_there_is_no_estimate() -> None:
    episode = EstimatorInput(1.0, np.zeros(2, np.int32), np.ones(2, np.bool_))
    with pytest.raises(ValueError, match="critic"):
        token_gae(episode, 1.0, 1.0)


def test_explained_variance() -> None:
    returns = np.array([0.0, 1.0, 2.0])
    assert explained_variance(returns, returns) == 1.0
    assert explained_variance(np.ones(3), returns) == 0.0
    assert np.isnan(explained_variance(returns, np.ones(3)))
