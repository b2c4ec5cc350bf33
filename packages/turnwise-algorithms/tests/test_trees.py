"""Credit in trees: against the paths written out, by hand, and in degenerate cases."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.algorithms.random_episodes import forests
from turnwise.algorithms.estimators import EstimatorInput
from turnwise.algorithms.outcome_advantages import grpo
from turnwise_algorithms.trees import (
    arpo,
    arpo_soft,
    path_lengths,
    path_mean,
    path_sum,
    roots,
    tree_grpo,
)

ESTIMATORS = (tree_grpo, arpo, arpo_soft)


def owner(group: list[EstimatorInput], index: int, turn: int) -> int:
    """Who sampled that turn of an episode's path."""
    while turn < group[index].first_turn:
        parent = group[index].parent
        index = parent
    return index


def through(group: list[EstimatorInput], index: int, turn: int) -> list[int]:
    """All episodes whose path has that turn of that episode."""
    return [
        other
        for other, episode in enumerate(group)
        if turn < episode.turns and owner(group, other, turn) == index
    ]


def episode(reward: float, turns: int, parent: int, first_turn: int = 0) -> EstimatorInput:
    turn = np.arange(turns, dtype=np.int32)
    return EstimatorInput(reward, turn, turn >= first_turn, parent=parent, first_turn=first_turn)


@given(forests(), st.integers(0, 2**32))
def test_a_turn_gets_what_all_episodes_through_it_have(
    group: list[EstimatorInput], seed: int
) -> None:
    numbers = np.random.default_rng(seed).normal(size=len(group))
    sums, means = path_sum(group, numbers), path_mean(group, numbers)
    for index, member in enumerate(group):
        assert len(sums[index]) == len(means[index]) == member.turns
        for turn in range(member.turns):
            if turn < member.first_turn:
                assert sums[index][turn] == means[index][turn] == 0
                continue
            shared = [numbers[other] for other in through(group, index, turn)]
            assert sums[index][turn] == pytest.approx(np.sum(shared), abs=1e-12)
            assert means[index][turn] == pytest.approx(np.mean(shared), abs=1e-12)


@given(forests())
def test_tree_grpo_is_the_papers_mean_over_whole_paths(group: list[EstimatorInput]) -> None:
    """arXiv 2509.21240: 1/G sum_i 1/|H_i| sum_t A_i over copies of all tokens of each path; here
    every token stands once, with the weight 1/G of `sequence_mean_token_sum`."""
    whole = grpo(np.array([member.total_reward for member in group]))
    trees = roots(group)
    scores = whole.copy()
    for root in set(trees):
        members = [index for index, own in enumerate(trees) if own == root]
        scores[members] += grpo(np.array([group[index].total_reward for index in members]))
    lengths = {
        (index, turn): int((member.mask & (member.turn == turn)).sum())
        for index, member in enumerate(group)
        for turn in range(member.first_turn, member.turns)
    }
    path = [
        sum(lengths[owner(group, index, turn), turn] for turn in range(member.turns))
        for index, member in enumerate(group)
    ]
    np.testing.assert_array_equal(path_lengths(group), path)
    found = tree_grpo(group)
    for (index, turn), length in lengths.items():
        if length:
            copies = sum(scores[other] / path[other] for other in through(group, index, turn))
            assert found[index][turn] == pytest.approx(copies, abs=1e-12)


def test_by_hand() -> None:
    """Episode 1 branches off 0 before its last turn, 2 off 1, and 3 is a tree of its own."""
    group = [episode(1.0, 2, 0), episode(0.0, 3, 0, 1), episode(1.0, 3, 1, 2), episode(0.0, 1, 3)]
    assert roots(group) == [0, 0, 0, 3]
    whole = np.array([0.5, -0.5, 0.5, -0.5]) / (np.sqrt(1 / 3) + 1e-6)
    tree = np.array([1 / 3, -2 / 3, 1 / 3, 0]) / (
        np.array([1, 1, 1, np.inf]) * np.sqrt(1 / 3) + 1e-6
    )
    hard = arpo(group)
    np.testing.assert_allclose(hard[0], [whole[:3].mean(), whole[0]])
    np.testing.assert_allclose(hard[1], [0, whole[1:3].mean(), whole[1]], atol=1e-15)
    np.testing.assert_allclose(hard[2], [0, 0, whole[2]])
    np.testing.assert_allclose(hard[3], [whole[3]])
    both = (whole + tree) / [2, 3, 3, 1]
    found = tree_grpo(group)
    np.testing.assert_allclose(found[0], [both[:3].sum(), both[0]], atol=1e-12)
    np.testing.assert_allclose(found[1], [0, both[1:3].sum(), both[1]], atol=1e-12)
    np.testing.assert_allclose(found[2], [0, 0, both[2]], atol=1e-12)
    np.testing.assert_allclose(found[3], [whole[3]])
    np.testing.assert_allclose(arpo_soft(group)[0], [whole[:3].sum(), whole[0]])


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_degenerate_groups(estimator: object) -> None:
    alone = [episode(0.7, 2, 0)]
    equal = [episode(0.1, 2, 0), *(episode(0.1, 2, 0, 1) for _ in range(9))]
    silent = [episode(0.0, 2, 0), episode(1.0, 1, 0, 1)]
    assert silent[1].turns == 0
    for group in (alone, equal):
        for row in estimator(group):
            np.testing.assert_array_equal(row, np.zeros(len(row)))
    assert [len(row) for row in estimator(silent)] == [2, 0]
    with pytest.raises(ValueError, match="the rollout has none"):
        estimator([replace(alone[0], parent=None)])
