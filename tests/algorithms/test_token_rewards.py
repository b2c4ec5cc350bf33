"""Rewards on single tokens: where they count, and that every estimator hears of them."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.algorithms.declared import defaults, functions, parts
from tests.algorithms.random_episodes import groups
from tests.marked import marked
from turnwise.algorithms.estimators import Credit, EstimatorInput
from turnwise.algorithms.parts import Trait

ESTIMATORS = functions("estimator")
ESTIMATOR = parts("estimator")

BATCHES = st.lists(groups(), min_size=1, max_size=3)
SEEDS = st.integers(0, 2**32)
HEARING = sorted(name for name, part in ESTIMATOR.items() if Trait.NO_PENALTY not in part.traits)
BY_TURN = ["turn_rloo", "hca", "turn_gae", "bilevel_gae"]
BY_TOKEN = ["returns", "returns_baseline", "token_gae", "length_adaptive_gae"]
UNSCALED = ["grpo"]
"""Where a penalty is not divided as the rewards are: see test_advantages.py."""
OWN_BASELINES = ["otb"]
"""Where a token's reward changes others' baselines too: see test_token_baselines.py."""
WHOLE = sorted(set(HEARING) - set(BY_TURN) - set(BY_TOKEN) - set(OWN_BASELINES) - set(UNSCALED))


def estimate(name: str, batch: list[list[EstimatorInput]]) -> list[list[Credit]]:
    numbers = defaults(ESTIMATOR[name])
    return ESTIMATORS[name](batch, **numbers)


def rewarded(batch: list[list[EstimatorInput]], seed: int) -> list[list[EstimatorInput]]:
    """With rewards on sampled tokens, and garbage on all others."""
    generator = np.random.default_rng(seed)

    def add(episode: EstimatorInput) -> EstimatorInput:
        rewards = generator.normal(size=len(episode.mask))
        return replace(episode, token_rewards=np.where(episode.mask, rewards, np.nan))

    return [[add(episode) for episode in group] for group in batch]


def sums(episode: EstimatorInput) -> np.ndarray:
    """float64[K]: a loop over the tokens."""
    by_turn = np.zeros(episode.turns)
    for turn, sampled, reward in zip(
        episode.turn, episode.mask, episode.token_rewards, strict=True
    ):
        if sampled:
            by_turn[turn] += reward
    return by_turn


def test_by_hand() -> None:
    episode = EstimatorInput(
        shaped_reward=1.0,
        turn=np.array([0, 0, 0, 0, 1, 1], np.int32),
        mask=np.array([False, True, True, False, True, False]),
        turn_rewards=np.array([0.5, 0.0]),
        token_rewards=np.array([np.nan, -0.1, -0.2, np.nan, -0.4, np.nan]),
    )
    assert episode.rewards_by_token() == pytest.approx([0, -0.1, 0.3, 0, 0.6, 0])
    assert episode.rewards_by_turn() == pytest.approx([0.2, 0.6])
    assert episode.total_reward == pytest.approx(0.8)


@pytest.mark.parametrize("name", marked([*WHOLE, *BY_TURN]))
@settings(max_examples=20, deadline=None)
@given(batch=BATCHES, seed=SEEDS)
def test_who_compares_turns_or_whole_trajectories_gets_their_sums(
    name: str, batch: list[list[EstimatorInput]], seed: int
) -> None:
    def moved(episode: EstimatorInput) -> EstimatorInput:
        by_turn = sums(episode)
        if name in BY_TURN:
            rewards = {"turn_rewards": np.asarray(episode.turn_rewards) + by_turn}
        else:
            rewards = {"shaped_reward": episode.shaped_reward + by_turn.sum()}
        return replace(episode, token_rewards=None, **rewards)

    given_batch = rewarded(batch, seed)
    expected = estimate(name, [[moved(episode) for episode in group] for group in given_batch])
    for row, others in zip(estimate(name, given_batch), expected, strict=True):
        for credit, other in zip(row, others, strict=True):
            np.testing.assert_allclose(credit.advantages, other.advantages, atol=1e-6)


@pytest.mark.long
@pytest.mark.parametrize("name", BY_TOKEN)
@settings(max_examples=20, deadline=None)
@given(batch=BATCHES, seed=SEEDS)
def test_who_counts_from_each_token_on_gets_them_where_they_stand(
    name: str, batch: list[list[EstimatorInput]], seed: int
) -> None:
    """By linearity: the advantages with them, less those without, are sums of what follows, with
    the decay of the estimator, less the change of the group's mean."""
    given_batch = rewarded(batch, seed)
    plain = [[replace(e, token_rewards=None) for e in group] for group in given_batch]
    pairs = zip(estimate(name, given_batch), estimate(name, plain), given_batch, strict=True)
    for with_them, without, group in pairs:
        mean = np.mean([sums(e).sum() for e in group]) if name == "returns_baseline" else 0.0
        for one, other, episode in zip(with_them, without, group, strict=True):
            length = int(episode.mask.sum())
            decay = max(0.0, 1 - 20 / length) if name == "length_adaptive_gae" else 1.0
            rewards = episode.token_rewards[episode.mask]
            expected = [
                sum(decay ** (later - t) * rewards[later] for later in range(t, length)) - mean
                for t in range(length)
            ]
            change = (one.advantages - other.advantages)[episode.mask]
            np.testing.assert_allclose(change, expected, atol=1e-9)
