"""Estimators: against their formulas in plain Python, what each lacks, and degenerate groups.

That the own sample in a token's baseline makes it biased: test_unbiasedness.py.
"""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from test_credit_of_turns import z_score
from tests.algorithms.declared import functions, parts
from tests.algorithms.random_episodes import groups, random_episode
from turnwise.algorithms.estimators import EstimatorInput
from turnwise_algorithms.estimators import (
    counterfactual,
    distillation,
    information_gain,
    otb,
    process_rloo,
    remax,
)

ESTIMATORS = functions("estimator")


def made(turn: Any, mask: Any, reward: float, measured: dict[str, Any]) -> EstimatorInput:
    arrays = {name: np.array(one, np.float64) for name, one in measured.items()}
    return EstimatorInput(reward, np.array(turn, np.int32), np.array(mask, np.bool_), **arrays)


def one_turn(mask: list[bool], reward: float = 1.0, **measured: list[float]) -> EstimatorInput:
    return made([0] * len(mask), mask, reward, measured)


def turns(reward: float, count: int, **measured: list[float]) -> EstimatorInput:
    """An episode of so many turns, of a token each."""
    return made(range(count), [True] * count, reward, measured)


def sampled(numbers: np.ndarray | None, episode: EstimatorInput) -> list[float]:
    return [float(x) for x, there in zip(numbers, episode.mask, strict=True) if there]


LACKING = [
    ("remax", "baseline", "greedy", "a greedy episode, and none was played"),
    ("counterfactual", "turn_values", "turn_values", "turns that were played on from"),
    ("distillation", "teacher_logprobs", "teacher", "log-probabilities of a teacher"),
    ("otb", "score_norms", "score_norms", "score norms"),
    ("process_rloo", "token_rewards", "process_rewards", "rewards per token"),
    ("information_gain", "information_gains", "information_gain", "information gains"),
    ("hca", "hindsight_logprobs", "hindsight", "log-probabilities in hindsight"),
    ("hcapo", "hindsight_logprobs", "hindsight", "log-probabilities in hindsight"),
    ("gigpo", "states", "states", "same state"),
]


@pytest.mark.parametrize(("name", "field", "need", "said"), LACKING)
def test_what_an_estimator_lacks_is_told(name: str, field: str, need: str, said: str) -> None:
    whole = random_episode(np.random.default_rng(0), 2)
    whole = replace(whole, token_rewards=whole.score_norms)
    lacking: dict[str, Any] = {field: None}
    ESTIMATORS[name]([[whole]])
    with pytest.raises(ValueError, match=said):
        ESTIMATORS[name]([[whole, replace(whole, **lacking)]])
    assert need in parts("estimator")[name].needs


def otb_by_hand(group: list[EstimatorInput]) -> list[list[float]]:
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


@given(groups(), st.integers(0, 2**32), st.booleans())
def test_otb_is_the_formula(group: list[EstimatorInput], seed: int, by_token: bool) -> None:
    """With episodes of unequal lengths: who has ended is in no later baseline. Rewards of tokens
    count from where they stand."""
    if by_token:
        generator = np.random.default_rng(seed)
        rewards = [
            np.where(one.mask, generator.normal(size=len(one.mask)), np.nan) for one in group
        ]
        group = [replace(one, token_rewards=own) for one, own in zip(group, rewards, strict=True)]
    for episode, row, expected in zip(group, otb(group), otb_by_hand(group), strict=True):
        assert row[episode.mask].tolist() == pytest.approx(expected, abs=1e-9)
        assert not row[~episode.mask].any()
    ((*credits,),) = ESTIMATORS["otb"]([group])
    for credit, row in zip(credits, otb(group), strict=True):
        np.testing.assert_array_equal(credit.advantages, row)


def normed(reward: float, norms: list[float], mask: list[bool] | None = None) -> EstimatorInput:
    return one_turn(mask or [True] * len(norms), reward, score_norms=norms)


@given(st.floats(-9, 9), st.lists(st.lists(st.floats(0, 2), max_size=5), min_size=1, max_size=5))
def test_equal_rewards_give_exactly_zero(reward: float, norms: list[list[float]]) -> None:
    for row in otb([normed(reward, own) for own in norms]):
        assert not row.any()


def test_certain_tokens_nothing_sampled_and_a_first_token_without_a_norm() -> None:
    """Where no gradient is, none is made up."""
    certain = [normed(1.0, [0.0, 0.0]), normed(0.0, [0.0])]
    assert not np.concatenate(otb(certain)).any()
    silent = normed(5.0, [1.0], [False])
    first, second, third = otb([silent, normed(1.0, [np.nan, 1.0]), normed(0.0, [2.0, 0.0])])
    assert first.tolist() == [0.0]
    assert second.tolist() == pytest.approx([1.0, 1 - 1 / 3])
    assert third.tolist() == pytest.approx([0.0, -1 / 3])
    assert otb([]) == []


@given(groups())
def test_remax_is_the_reward_less_the_greedy_one(group: list[EstimatorInput]) -> None:
    for member, number in zip(group, remax(group), strict=True):
        expected = member.shaped_reward + sum(member.turn_rewards) - member.baseline
        assert number == pytest.approx(expected, abs=1e-12)


def test_a_greedy_episode_without_a_grade_is_no_baseline() -> None:
    """Not even one of 0: nothing is learned from the group."""
    ungraded, graded = ([replace(turns(1.0, 1), baseline=b)] for b in (np.nan, 0.0))
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
    (found,) = counterfactual([turns(values[-1], len(values) - 1, turn_values=given_values)])
    filled = list(given_values)
    for turn in reversed(range(len(values) - 1)):
        filled[turn] = filled[turn + 1] if np.isnan(filled[turn]) else filled[turn]
    expected = [after - before for before, after in pairwise(filled)]
    np.testing.assert_allclose(found, expected, atol=1e-12)
    assert all(found[turn] == 0 for turn in missing)


def test_a_turn_without_room_to_sample_is_no_turn_of_the_policy() -> None:
    (found,) = counterfactual([turns(0.0, 1, turn_values=[0.5, 0.2, 0.0])])
    np.testing.assert_allclose(found, [-0.3])


def taught(mask: list[bool], policy: list[float], teacher: list[float]) -> EstimatorInput:
    return one_turn(mask, logprobs=policy, teacher_logprobs=teacher)


def test_distillation_by_hand() -> None:
    """An observation, and a first token, which the teacher did not score."""
    nan = np.nan
    given_episode = taught(
        [True, True, False, True], [-1.0, -2.0, nan, -0.5], [nan, -0.5, nan, -3.0]
    )
    assert distillation(given_episode).tolist() == [0.0, 1.5, 0.0, -2.5]
    ((credit,),) = ESTIMATORS["distillation"]([[given_episode]])
    assert credit.advantages.tolist() == [0.0, 1.5, 0.0, -2.5]
    assert distillation(taught([False], [nan], [nan])).tolist() == [0.0]


@given(group=groups(sizes=(2, 5)), seed=st.integers(0, 999), discount=st.floats(0, 1))
def test_process_rloo_is_the_formula(
    group: list[EstimatorInput], seed: int, discount: float
) -> None:
    generator = np.random.default_rng(seed)
    episodes = [replace(e, token_rewards=generator.normal(size=len(e.mask))) for e in group]
    rewards = [sampled(e.token_rewards, e) for e in episodes]
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


def test_process_rloo_of_one_and_of_one_beside_a_silent_one() -> None:
    one = one_turn([True, True], token_rewards=[0.5, 0.1])
    silent = one_turn([False, False], 0.0, token_rewards=[0.0, 0.0])
    assert process_rloo([one], 1.0)[0].tolist() == [0, 0]
    assert [row.tolist() for row in process_rloo([one, silent], 1.0)] == [[1, 1], [0, 0]]


def gained(reward: float, gains: list[float]) -> EstimatorInput:
    return turns(reward, len(gains) + 1, information_gains=gains)


def test_information_gain_by_hand() -> None:
    """IGPO (arXiv 2510.14967): z-scores, then sums of what comes; apart, and all together. Rewards
    of turns are part of the outcome."""
    first = replace(gained(0.25, [0.2, 0.4]), turn_rewards=np.array([0.5, 0.0, 0.25]))
    group = [first, gained(0.0, [0.1]), gained(0.5, [])]
    gains, outcome = z_score([0.2, 0.4, 0.1]), z_score([1, 0, 0.5])
    together = z_score([0.2, 0.4, 0.1, 1, 0, 0.5])
    for separate, scores in ((1, [*gains, *outcome]), (0, together)):
        g, o = scores[:3], scores[3:]
        found = information_gain(group, 0.5, separate)
        second = g[1] + 0.5 * o[0]
        np.testing.assert_allclose(found[0], [g[0] + 0.5 * second, second, o[0]], atol=1e-9)
        np.testing.assert_allclose(found[1], [g[2] + 0.5 * o[1], o[1]], atol=1e-9)
        np.testing.assert_allclose(found[2], [o[2]], atol=1e-9)


def test_information_gain_of_one_and_of_an_all_equal_group_is_nothing() -> None:
    for group in ([gained(0.7, [0.0])], [gained(0.1, [0.0, 0.0])] * 10):
        assert not np.concatenate(information_gain(group, 1.0, 1)).any()
