"""Estimators over a batch: on tokens, whitened, named, and deaf to what they must not hear."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.algorithms.declared import defaults, functions, parts
from tests.algorithms.random_episodes import groups
from turnwise.algorithms.advantages import whiten
from turnwise.algorithms.estimators import EstimatorInput
from turnwise.errors import ConfigError

ESTIMATORS = functions("estimator")
ESTIMATOR = parts("estimator")

BINARY = ("pass_at_k", "max_rl")
BATCHES = st.lists(groups(), min_size=1, max_size=4)


def estimate(name: str, batch: list[list[EstimatorInput]]) -> list[list[np.ndarray]]:
    numbers = defaults(ESTIMATOR[name])
    if name == "gdpo":
        numbers = {"reward_weights": {"form": 0.5, "content": 2.0}}
    if name in BINARY:
        batch = [
            [replace(e, shaped_reward=float(e.shaped_reward > 0), turn_rewards=None) for e in group]
            for group in batch
        ]
    if name == "process_rloo":
        batch = [[replace(e, token_rewards=e.values) for e in group] for group in batch]
    return [[credit.advantages for credit in row] for row in ESTIMATORS[name](batch, **numbers)]


@pytest.mark.long
@pytest.mark.parametrize("name", ESTIMATORS)
@settings(max_examples=25, deadline=None)
@given(batch=BATCHES, place=st.integers(0, 100))
def test_a_token_that_was_not_sampled_has_no_advantage_and_changes_nothing(
    name: str, batch: list[list[EstimatorInput]], place: int
) -> None:
    """Wherever tool output stands and however long it is."""

    def longer(episode: EstimatorInput) -> EstimatorInput:
        at = place % len(episode.mask)
        garbage: dict[str, Any] = {"mask": False, "turn": episode.turn[at]}
        garbage |= dict.fromkeys(("values", "teacher_logprobs", "score_norms"), 99.0)
        garbage |= dict.fromkeys(("logprobs", "hindsight_logprobs"), np.nan)
        arrays = {name: np.insert(getattr(episode, name), at, one) for name, one in garbage.items()}
        return replace(episode, **arrays)

    plain = estimate(name, batch)
    padded = estimate(name, [[longer(episode) for episode in group] for group in batch])
    for row, padded_row, group in zip(plain, padded, batch, strict=True):
        for found, other, episode in zip(row, padded_row, group, strict=True):
            at = place % len(episode.mask)
            assert other[at] == 0
            assert not found[~episode.mask].any()
            assert np.isfinite(found).all()
            np.testing.assert_allclose(np.delete(other, at), found, atol=1e-9)


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(set(ESTIMATORS) - {"reinforce_baseline", "gdpo"}))
@settings(max_examples=25, deadline=None)
@given(batch=BATCHES)
def test_other_groups_do_not_matter(name: str, batch: list[list[EstimatorInput]]) -> None:
    together = estimate(name, batch)
    for index, group in enumerate(batch):
        for found, alone in zip(together[index], estimate(name, [group])[0], strict=True):
            np.testing.assert_allclose(found, alone, atol=1e-9)


def test_reinforce_with_a_baseline_is_leave_one_out_over_the_batch() -> None:
    turn, mask = np.zeros(1, np.int32), np.ones(1, np.bool_)
    batch = [
        [EstimatorInput(reward, turn, mask) for reward in group] for group in ((1.0, 0.0), (0.5,))
    ]
    found = [row[0] for group in estimate("reinforce_baseline", batch) for row in group]
    np.testing.assert_allclose(found, [1 - 0.25, -0.75, 0.5 - 0.5])


def test_returns_are_discounted_per_sampled_token() -> None:
    """REINFORCE++ (arXiv 2501.03262): an observation in between costs no discount; by hand."""
    episode = EstimatorInput(
        1.0,
        turn=np.array([0, 0, 0, 0, 0, 1, 1], np.int32),
        mask=np.array([False, True, True, False, False, True, True]),
        turn_rewards=np.array([0.4, 0.0]),
    )
    (credit,) = ESTIMATORS["returns"]([[episode]], discount=0.5)[0]
    last, third = 1.0, 0.5
    second = 0.4 + 0.5 * third
    assert credit.advantages == pytest.approx([0, 0.5 * second, second, 0, 0, third, last])


def gdpo(
    batch: list[list[Mapping[str, float]]], reward_weights: Mapping[str, float]
) -> list[list[float]]:
    """The advantage of each episode's only token; its reward is one that must not count."""
    turn, mask = np.zeros(1, np.int32), np.ones(1, np.bool_)
    groups = [[EstimatorInput(7.0, turn, mask, parts=parts) for parts in group] for group in batch]
    rows = ESTIMATORS["gdpo"](groups, reward_weights=reward_weights)
    return [[credit.advantages.item() for credit in row] for row in rows]


def test_gdpo_by_hand() -> None:
    """GDPO (arXiv 2601.05242): z-scores of each named part in its group, their weighted sum
    z-scored over the batch; written out, in floats of Python. Other parts do not count."""
    batch: list[list[Mapping[str, float]]] = [
        [{"right": right, "form": form, "unnamed": unnamed} for right, form, unnamed in group]
        for group in (
            [(1.0, 0.0, 1.0), (0.0, 10.0, 0.0), (0.0, 0.0, 1.0)],
            [(1.0, 5.0, 0.0), (0.0, 5.0, 1.0), (1.0, 5.0, 0.0)],
        )
    ]
    two_thirds, third = 1.1547005383792517, 0.5773502691896258  # of one different among three
    sums = [
        2 * two_thirds - third * 0.5,
        -2 * third + two_thirds * 0.5,
        -2 * third - third * 0.5,
        2 * third,
        -2 * two_thirds,
        2 * third,
    ]
    mean = sum(sums) / 6
    deviation = (sum((number - mean) ** 2 for number in sums) / 5) ** 0.5
    found = gdpo(batch, {"right": 2.0, "form": 0.5})
    expected = [(number - mean) / deviation for number in sums]
    assert [value for row in found for value in row] == pytest.approx(expected, abs=1e-5)


def test_gdpo_is_told_which_parts_and_one_that_a_verdict_lacks_is_not_zero() -> None:
    batch: list[list[Mapping[str, float]]] = [[{"right": 1.0, "form": 1.0}, {"right": 0.0}]]
    with pytest.raises(ConfigError, match=r"'rihgt', which a verdict does not .* form, right\."):
        gdpo(batch, {"rihgt": 1.0})
    with pytest.raises(ConfigError, match="needs reward_weights"):
        gdpo(batch, {})
    assert gdpo(batch, {"right": 1.0})[0][0] > 0
    with pytest.raises(ConfigError, match=r"'form', which a verdict does not have .*: right\."):
        gdpo(batch, {"form": 1.0})


def test_a_penalty_in_the_reward_is_not_scaled_up_where_rewards_are_equal() -> None:
    """Rewards of 1 and 1, penalties of 0.002 and 0: differences of 0.001, not z-scores of 0.7."""
    turn, mask = np.zeros(2, np.int32), np.ones(2, np.bool_)
    group = [
        EstimatorInput(1.0, turn, mask, token_rewards=np.array([-0.001, -0.001])),
        EstimatorInput(1.0, turn, mask, token_rewards=np.array([0.0, 0.0])),
    ]
    found = [row[0] for row in estimate("grpo", [group])[0]]
    assert found == pytest.approx([-0.001, 0.001], abs=1e-12)


@pytest.mark.long
@given(BATCHES)
def test_whitening_is_over_all_sampled_tokens(batch: list[list[EstimatorInput]]) -> None:
    credits = ESTIMATORS["reinforce"](batch)
    found = whiten(credits, batch)
    masks = [episode.mask for group in batch for episode in group]
    rows = [[credit.advantages for row in part for credit in row] for part in (credits, found)]
    before, after = (
        np.concatenate([one[mask] for one, mask in zip(part, masks, strict=True)]) for part in rows
    )
    if len(before) < 2 or before.min() == before.max():
        np.testing.assert_array_equal(after, np.zeros(len(after)))
    else:
        expected = (before - before.mean()) / np.sqrt(before.var() + 1e-8)
        np.testing.assert_allclose(after, expected, atol=1e-9)
    assert not any(one[~mask].any() for one, mask in zip(rows[1], masks, strict=True))


@pytest.mark.parametrize("name", ESTIMATORS)
def test_where_nothing_was_sampled_there_is_no_advantage(name: str) -> None:
    silent = EstimatorInput(
        1.0,
        np.zeros(2, np.int32),
        np.zeros(2, np.bool_),
        np.zeros(0),
        values=np.ones(2),
        states=[],
        baseline=0.0,
        parts={"form": 1.0, "content": 0.0},
        information_gains=np.zeros(0),
        parent=0,
        turn_values=np.array([0.5, 1.0]),
        logprobs=np.full(2, np.nan),
        teacher_logprobs=np.zeros(2),
        hindsight_logprobs=np.full(2, np.nan),
        score_norms=np.full(2, np.nan),
    )
    for advantages in estimate(name, [[silent, silent]])[0]:
        np.testing.assert_array_equal(advantages, [0, 0])
    assert estimate(name, []) == []
    assert estimate(name, [[]]) == [[]]


@pytest.mark.parametrize("field", ["shaped_reward", "turn_rewards", "token_rewards"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_reward_that_is_no_number_is_refused(field: str, bad: float) -> None:
    turn, mask = np.zeros(2, np.int32), np.array([True, False])
    given = {"shaped_reward": 1.0, field: bad if field == "shaped_reward" else np.array([bad, 0.0])}
    with pytest.raises(ValueError, match=f"{field} 0 is {bad}"):
        EstimatorInput(turn=turn, mask=mask, **given)


def test_rewards_where_nothing_was_sampled_are_refused() -> None:
    turn, mask = np.array([0, 0], np.int32), np.array([False, True])
    with pytest.raises(ValueError, match="2 turn rewards for 1 turns"):
        EstimatorInput(1.0, turn, mask, turn_rewards=np.array([0.0, 1.0])).rewards_by_turn()
