"""Episodes that begin in the middle of another: the same past, another future, trained once."""

from dataclasses import replace

import numpy as np
import pytest

from test_tree_rollouts import runner
from tests.fakes import RISKY_CHANCE, SAFE_PAY
from turnwise.errors import NotSupportedError
from turnwise.rollout.runner import RolloutRunner
from turnwise.tokens import Source
from turnwise.types import Outcome, Task, Trajectory, Verdict
from turnwise_algorithms.branching import branch_at, play_on, turn_values, values_of

PULLS = 2
MEAN = 0.5 * SAFE_PAY + 0.5 * RISKY_CHANCE


def keeping(snapshots: bool = True) -> RolloutRunner:
    """A policy that pulls either arm with probability one half."""
    return replace(runner(pulls=PULLS), snapshots=snapshots)


async def parents(made: RolloutRunner) -> list[Trajectory]:
    groups = await made.collect(made.environment.tasks("train"), 2, 0, "test")
    return [member for group in groups for member in group.trajectories]


async def test_a_branch_shares_its_parents_past_and_trains_none_of_it() -> None:
    made = keeping()
    parent = (await parents(made))[0]
    (children,) = await play_on(made, [(parent, 1)], 5, 0, "branch")
    end = len(branch_at(parent, 1).tokens)
    first = parent.tokens.mask & (parent.tokens.turn == 0)
    assert first.any()
    for child in children:
        np.testing.assert_array_equal(child.tokens.ids[:end], parent.tokens.ids[:end])
        np.testing.assert_array_equal(child.tokens.source[:end] == Source.INHERITED, first[:end])
        assert not child.tokens.mask[:end].any()
        assert (child.tokens.turn[child.tokens.mask] == 1).all()
        assert child.turns[0] == parent.turns[0]
        assert len(child.turns) == PULLS
        assert child.reward is not None


async def test_branches_have_other_luck_and_other_choices() -> None:
    made = keeping()
    parent = (await parents(made))[0]
    (children,) = await play_on(made, [(parent, 0)], 60, 0, "branch")
    assert len({child.reward for child in children}) > 3


@pytest.mark.slow
async def test_values_of_turns_are_right_within_their_errors() -> None:
    """A pull is worth 0.2 on average; what was paid already is certain."""
    made = keeping()
    played = await parents(made)
    found = await turn_values(made, played, 150, 0, "values")
    for parent, values in zip(played, found, strict=True):
        paid = [turn.step.reward for turn in parent.turns if turn.step is not None]
        expected = np.array([2 * MEAN, paid[0] + MEAN, sum(paid)])
        assert (np.abs(values.values - expected) < 4 * values.errors + 1e-9).all()
        assert values.values[-1] == parent.reward
        assert values.counts.tolist() == [150, 150]
        assert values.errors[-1] == 0
        np.testing.assert_allclose(values.criticality.sum(), values.values[-1] - values.values[0])
        assert values.criticality_errors.shape == (PULLS,)


async def test_branching_repeats_with_the_seed() -> None:
    rewards = []
    for _ in range(2):
        made = keeping()
        (children,) = await play_on(made, [((await parents(made))[0], 0)], 8, 3, "branch")
        rewards.append([child.reward for child in children])
    assert rewards[0] == rewards[1]


async def test_without_snapshots_there_is_no_branch() -> None:
    (parent, *_) = await parents(keeping(snapshots=False))
    with pytest.raises(NotSupportedError, match="roll out with them"):
        branch_at(parent, 0)


def test_a_replay_without_a_grade_is_in_no_value() -> None:
    """0.75 of two that are graded, and not 0.5 of three; nothing where none is."""

    def judged(reward: float | None) -> Trajectory:
        outcome = Outcome.GRADER_ERROR if reward is None else Outcome.FAILURE
        verdict = None if reward is None else Verdict(reward, False)
        return Trajectory(Task("t", "?"), "g", 0, 0, outcome=outcome, verdict=verdict)

    played = [[judged(1.0), judged(None), judged(0.5)], [judged(None)]]
    found = values_of(judged(0.25), played)
    np.testing.assert_allclose(found.values, [0.75, np.nan, 0.25])
    assert found.counts.tolist() == [2, 0]
