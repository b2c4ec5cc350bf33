"""Credit from rewards per token, against the formula in plain Python."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.algorithms.random_episodes import groups
from turnwise.algorithms.estimators import EstimatorInput
from turnwise_algorithms.process_rewards import process_rloo


def with_rewards(group: list[EstimatorInput], seed: int) -> list[EstimatorInput]:
    generator = np.random.default_rng(seed)
    return [
        EstimatorInput(
            e.shaped_reward,
            e.turn,
            e.mask,
            e.turn_rewards,
            np.where(e.mask, generator.normal(size=len(e.mask)), np.nan),
        )
        for e in group
    ]


@given(group=groups(sizes=(2, 5)), seed=st.integers(0, 999), discount=st.floats(0, 1))
def test_it_is_the_formula(group: list[EstimatorInput], seed: int, discount: float) -> None:
    episodes = with_rewards(group, seed)
    rewards = [
        [float(r) for r, m in zip(np.asarray(e.token_rewards), e.mask, strict=True) if m]
        for e in episodes
    ]
    outcomes = [e.shaped_reward + sum(np.asarray(e.turn_rewards).tolist()) for e in episodes]
    found = process_rloo(episodes, discount)
    for i, episode in enumerate(episodes):
        others = [j for j in range(len(episodes)) if j != i]
        baseline = sum(sum(rewards[j]) / len(rewards[j]) for j in others) / len(others)
        outcome = outcomes[i] - sum(outcomes[j] for j in others) / len(others)
        expected = [
            sum(discount ** (s - t) * (rewards[i][s] - baseline) for s in range(t, len(rewards[i])))
            + outcome
            for t in range(len(rewards[i]))
        ]
        np.testing.assert_allclose(found[i][episode.mask], expected, atol=1e-9)
        assert not found[i][~episode.mask].any()


@given(group=groups(sizes=(1, 5)), seed=st.integers(0, 999))
def test_the_order_of_the_group_does_not_matter(group: list[EstimatorInput], seed: int) -> None:
    episodes = with_rewards(group, seed)
    for one, other in zip(
        process_rloo(episodes, 1.0), process_rloo(episodes[::-1], 1.0)[::-1], strict=True
    ):
        np.testing.assert_allclose(one, other, atol=1e-9)


def test_degenerate_groups() -> None:
    """One; one that sampled something beside one that did not; none without rewards."""
    turn, mask = np.zeros(2, np.int32), np.array([True, True])
    one = EstimatorInput(1.0, turn, mask, token_rewards=np.array([0.5, 0.1]))
    silent = EstimatorInput(0.0, turn, ~mask, token_rewards=np.zeros(2))
    assert process_rloo([one], 1.0)[0].tolist() == [0, 0]
    assert [row.tolist() for row in process_rloo([one, silent], 1.0)] == [[1, 1], [0, 0]]
    with pytest.raises(ValueError, match="needs a reward per token"):
        process_rloo([EstimatorInput(1.0, turn, mask)], 1.0)
