"""Episodes that begin in the middle of another: the same past, another future, trained once."""

import asyncio
import random

import numpy as np
import pytest

from tests.fakes import RISKY_CHANCE, SAFE_PAY, Arms, byte_tokenizer
from turnwise.config import RolloutConfig
from turnwise.engines.scripted import ScriptedEngine
from turnwise.errors import NotSupportedError
from turnwise.rollout.priority_semaphore import PrioritySemaphore
from turnwise.rollout.runner import RolloutRunner
from turnwise.scaffolds.tags import TagsScaffold
from turnwise.tokens import Source
from turnwise.types import Outcome, Task, Trajectory, Verdict
from turnwise_algorithms.branching import branch_at, play_on, turn_values, values_of

TOKENIZER = byte_tokenizer()
PULLS = 2
MEAN = 0.5 * SAFE_PAY + 0.5 * RISKY_CHANCE


def runner(snapshots: bool = True) -> RolloutRunner:
    """A policy that pulls either arm with probability one half."""
    environment = Arms(PULLS)
    stream = random.Random(0)

    def policy(session: str, prompt: list[int]) -> list[int]:
        names = TOKENIZER.decode(prompt).split(" arm")[:2]
        arm = stream.choice([name.rpartition(" ")[2] for name in names])
        return list(TOKENIZER(f"<pull> {arm}</pull>", add_special_tokens=False)["input_ids"])

    scaffold = TagsScaffold(TOKENIZER, environment.tools(), instructions="")
    limits = RolloutConfig(max_turns=4, max_turn_tokens=60, max_tokens=900)
    return RolloutRunner(
        environment,
        scaffold,
        ScriptedEngine(policy),
        limits,
        PrioritySemaphore(64),
        snapshots=snapshots,
    )


def parents(made: RolloutRunner) -> list[Trajectory]:
    groups = asyncio.run(made.collect(made.environment.tasks("train"), 2, 0, "test"))
    return [member for group in groups for member in group.trajectories]


def test_a_branch_shares_its_parents_past_and_trains_none_of_it() -> None:
    made = runner()
    parent = parents(made)[0]
    (children,) = asyncio.run(play_on(made, [(parent, 1)], 5, 0, "branch"))
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


def test_branches_have_other_luck_and_other_choices() -> None:
    made = runner()
    parent = parents(made)[0]
    (children,) = asyncio.run(play_on(made, [(parent, 0)], 60, 0, "branch"))
    assert len({child.reward for child in children}) > 3


@pytest.mark.slow
def test_values_of_turns_are_right_within_their_errors() -> None:
    """A pull is worth 0.2 on average; what was paid already is certain."""
    made = runner()
    played = parents(made)
    found = asyncio.run(turn_values(made, played, 150, 0, "values"))
    for parent, values in zip(played, found, strict=True):
        paid = [turn.step.reward for turn in parent.turns if turn.step is not None]
        expected = np.array([2 * MEAN, paid[0] + MEAN, sum(paid)])
        assert (np.abs(values.values - expected) < 4 * values.errors + 1e-9).all()
        assert values.values[-1] == parent.reward
        assert values.counts.tolist() == [150, 150]
        assert values.errors[-1] == 0
        np.testing.assert_allclose(values.criticality.sum(), values.values[-1] - values.values[0])
        assert values.criticality_errors.shape == (PULLS,)


def test_branching_repeats_with_the_seed() -> None:
    rewards = []
    for _ in range(2):
        made = runner()
        (children,) = asyncio.run(play_on(made, [(parents(made)[0], 0)], 8, 3, "branch"))
        rewards.append([child.reward for child in children])
    assert rewards[0] == rewards[1]


def test_without_snapshots_there_is_no_branch() -> None:
    with pytest.raises(NotSupportedError, match="roll out with them"):
        branch_at(parents(runner(snapshots=False))[0], 0)


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
