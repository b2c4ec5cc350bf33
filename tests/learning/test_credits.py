"""Credits: what an estimator is told of a trajectory, and what its advantages are over."""

import math
from dataclasses import replace

import numpy as np
import pytest

from tests.learning.building import GRPO, each, make_groups, with_one
from turnwise.algorithms import make_algorithm
from turnwise.learning.credits import estimate, estimator_inputs
from turnwise.learning.signals.base import SignalArrays, Signals
from turnwise.types import Action, Outcome, Step, Trajectory, Turn, Verdict


def test_the_penalty_is_taken_off_what_the_estimator_sees_alone() -> None:
    turns = (Turn(Action(""), Step(reward=0.25)),)
    (group,) = with_one(make_groups([[1.0, None, 0.5]]), 0, 0, turns=turns)
    first, _, last = group.trajectories
    own, other = estimator_inputs(group, Signals({first.id: SignalArrays(penalty=0.75)}))
    assert (own.shaped_reward, own.total_reward) == (0.25, 0.5)
    assert (first.outcome_reward, first.reward) == (1.0, 1.25)
    assert (other.shaped_reward, other.total_reward, last.reward) == (0.5, 0.5, 0.5)


def test_what_was_measured_reaches_the_estimator() -> None:
    (group,) = make_groups([[1.0]])
    (member,) = group.trajectories
    numbers = np.arange(len(member.tokens), dtype=np.float32)
    names = ("values", "teacher_logprobs", "hindsight_logprobs", "score_norms", "token_rewards")
    arrays = {name: numbers + place for place, name in enumerate(names)}
    gains = np.array([0.5])
    signals = Signals({member.id: SignalArrays(**arrays, information_gains=gains)})
    (own,) = estimator_inputs(group, signals)
    for name in names:
        np.testing.assert_array_equal(getattr(own, name), arrays[name])
    np.testing.assert_array_equal(own.information_gains, gains)
    (bare,) = estimator_inputs(group, Signals())
    assert all(getattr(bare, name) is None for name in (*names, "information_gains"))
    assert (bare.baseline, bare.turn_values) == (None, None)


def beside(member: Trajectory, reward: float | None, turn: int) -> Trajectory:
    """One that was played on from before a turn."""
    outcome = Outcome.GRADER_ERROR if reward is None else Outcome.FAILURE
    verdict = None if reward is None else Verdict(reward, False)
    child = {"parent": member.episode, "first_turn": turn, "outcome": outcome, "verdict": verdict}
    return replace(member, **child)


def test_values_of_turns_are_means_of_what_was_played_on_from_them() -> None:
    """NaN where none of it has a grade; each member's are those of its own."""
    (group,) = each(make_groups([[1.0, 0.0]]), lambda m: replace(m, snapshots=(b"",) * 2))
    first, second = group.trajectories
    played = ((first, 0.5, 0), (first, 1.0, 0), (first, None, 1), (second, 0.25, 1))
    group = replace(group, baseline_rollouts=tuple(beside(*one) for one in played))
    one, other = (own.turn_values for own in estimator_inputs(group, Signals()))
    np.testing.assert_array_equal(one, [0.75, np.nan, 1.0])
    np.testing.assert_array_equal(other, [np.nan, 0.25, 0.0])


def test_a_reward_that_is_no_number_names_the_episode() -> None:
    with pytest.raises(ValueError, match="g1 episode 0: shaped_reward 0 is nan"):
        estimate(make_groups([[1.0, 0.0], [math.nan, 0.0]]), Signals(), GRPO)


@pytest.mark.parametrize("dropped", ["group_filter", "trajectory_filter"])
def test_whitening_counts_what_is_trained_alone(dropped: str) -> None:
    """With a group, or with trajectories, that a filter drops: as without them."""
    part = {"group_filter": "all_equal", "trajectory_filter": "overlong"}[dropped]
    algorithm = make_algorithm("reinforce_pp", {dropped: part})
    rewards = [[1.0, 0.0, 0.3], [5.0, 5.0]] if dropped == "group_filter" else [[1.0, 0.0, 0.3, 5.0]]
    groups = make_groups(rewards)
    if dropped == "trajectory_filter":
        groups = with_one(groups, 0, 3, outcome=Outcome.TRUNCATED_TOKENS)
    credits = estimate(groups, Signals(), algorithm)
    kept = make_groups([[1.0, 0.0, 0.3]])
    alone = estimate(kept, Signals(), make_algorithm("reinforce_pp", {}))
    members = groups[0].trajectories[:3]
    for member in members:
        np.testing.assert_array_equal(credits.advantages[member.id], alone.advantages[member.id])
    sampled = [credits.advantages[m.id][m.tokens.mask] for m in members]
    assert np.concatenate(sampled).mean() == pytest.approx(0, abs=1e-6)
    assert np.concatenate(sampled).std() == pytest.approx(1, abs=1e-6)
