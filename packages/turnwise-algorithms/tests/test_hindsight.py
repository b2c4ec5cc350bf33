"""Credit in hindsight: against the formulas written out, and in degenerate cases.

That hca is biased where some returns can follow some actions only: test_unbiasedness.py.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from test_credit_of_turns import z_score
from tests.algorithms.random_episodes import groups
from turnwise.algorithms.estimators import EstimatorInput
from turnwise_algorithms.hindsight import criticality, hca, hcapo


def sampled(episode: EstimatorInput, numbers: np.ndarray | None, turn: int) -> list[float]:
    return [
        float(numbers[place])
        for place in range(len(episode.mask))
        if episode.mask[place] and episode.turn[place] == turn
    ]


@given(groups(), st.floats(0, 1), st.floats(1, 10))
def test_hca_is_the_formula(group: list[EstimatorInput], discount: float, cap: float) -> None:
    for member, found in zip(group, hca(group, discount, cap), strict=True):
        rewards = member.rewards_by_turn()
        for turn in range(member.turns):
            told = sum(sampled(member, member.hindsight_logprobs, turn))
            log_ratio = sum(sampled(member, member.logprobs, turn)) - told
            assert criticality(member)[turn] == pytest.approx(-log_ratio, abs=1e-9)
            ahead = sum(discount ** (k - turn) * rewards[k] for k in range(turn, member.turns))
            expected = (1 - min(np.exp(log_ratio), cap)) * ahead
            assert found[turn] == pytest.approx(expected, abs=1e-7, rel=1e-7)


@given(groups(), st.floats(0.1, 1), st.floats(0, 2), st.floats(0.5, 5))
def test_hcapo_is_the_formula(
    group: list[EstimatorInput], discount: float, weight: float, temperature: float
) -> None:
    refined = []
    for member in group:
        likely = [
            np.exp(np.mean(sampled(member, member.hindsight_logprobs, turn)) / temperature)
            for turn in range(member.turns)
        ]
        refined += [
            min(max(p / np.mean(likely), 0.8), 1.2)
            * discount ** (member.turns - 1 - turn)
            * member.total_reward
            for turn, p in enumerate(likely)
        ]
    whole, scores = z_score([member.total_reward for member in group]), z_score(refined).tolist()
    found = hcapo(group, discount, weight, temperature, 0.8, 1.2)
    assert len(found) == len(group)
    for row, outcome in zip(found, whole, strict=True):
        own, scores = scores[: len(row)], scores[len(row) :]
        np.testing.assert_allclose(row, outcome + weight * np.array(own), atol=1e-7)
    assert scores == []


def test_degenerate_groups() -> None:
    """What was told changes nothing: hca teaches nothing; equal rewards and equal turns: hcapo."""
    turn = np.arange(2, dtype=np.int32)
    same = np.log([0.5, 0.25])
    made = EstimatorInput(0.1, turn, np.ones(2, np.bool_), logprobs=same, hindsight_logprobs=same)
    for row in hca([made] * 10, 1.0, 5.0):
        np.testing.assert_array_equal(row, [0.0, 0.0])
    flat = replace(made, hindsight_logprobs=np.log([0.5, 0.5]))
    for row in hcapo([flat] * 10, 1.0, 1.0, 1.0, 0.8, 1.2):
        np.testing.assert_array_equal(row, [0.0, 0.0])
