"""Episodes that begin in the middle of another: the same past, another future, trained once; and
what is played beside groups: a greedy episode, and replays of every turn."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from test_tree_rollouts import PULLS, Strict, runner
from tests.algorithms.declared import functions
from tests.fakes import RISKY_CHANCE, SAFE_PAY
from turnwise.algorithms.registry import make_algorithm
from turnwise.engines.base import Completion, Sampling
from turnwise.errors import NotSupportedError, RunStoppedError
from turnwise.learning.credits import estimate, estimator_inputs
from turnwise.learning.signals.base import Signals
from turnwise.monitor.metrics import rollout_metrics
from turnwise.rollout.runner import RolloutRunner
from turnwise.tokens import Source
from turnwise.types import Group, Outcome, Task, Trajectory, Verdict
from turnwise_algorithms.branching import branch_at, play_on, turn_values, values_of

ROLLOUTS = functions("rollout")


def collect(name: str, made: RolloutRunner, size: int = 4, **numbers: float) -> list[Group]:
    tasks = made.environment.tasks("train")
    return asyncio.run(ROLLOUTS[name](made, tasks, size, 0, "test", **numbers))


def watch(made: RolloutRunner) -> list[Sampling]:
    """All that the engine is asked for from now on."""
    seen: list[Sampling] = []
    generate = made.engine.generate

    async def noted(prompt: list[int], sampling: Sampling, *, session: str) -> Completion:
        seen.append(sampling)
        return await generate(prompt, sampling, session=session)

    made.engine.generate = noted
    return seen


def test_one_greedy_episode_beside_each_group() -> None:
    made = runner()
    seen = watch(made)
    groups = collect("greedy", made)
    assert [sampling.temperature for sampling in seen].count(0.0) == len(groups) * PULLS
    assert {sampling.temperature for sampling in seen[: len(groups) * 4 * PULLS]} == {1.0}
    for group in groups:
        (beside,) = group.baseline_rollouts
        assert len(group.trajectories) == 4
        assert beside not in group.trajectories
        assert [own.baseline for own in estimator_inputs(group, Signals())] == [beside.reward] * 4


@pytest.mark.long
@pytest.mark.parametrize("name", ["greedy", "turn_replays"])
def test_sampling_masks_are_asked_for_in_episodes_that_are_learned_from_alone(name: str) -> None:
    plain = runner()
    seen = watch(plain)
    collect(name, plain)
    assert not any(sampling.returns_kept for sampling in seen)
    made = replace(plain, limits=plain.limits.model_copy(update={"top_p": 0.9}))
    seen = watch(made)
    groups = collect(name, made)
    turns = sum(len(member.turns) for group in groups for member in group.trajectories)
    assert sum(sampling.returns_kept for sampling in seen) == turns < len(seen)


def test_the_other_episodes_are_those_without_it() -> None:
    """And none is played where nothing asks for it."""
    plain, greedy = collect("independent", runner()), collect("greedy", runner())
    assert not any(group.baseline_rollouts for group in plain)
    for group, other in zip(plain, greedy, strict=True):
        assert group.id == other.id
        for member, twin in zip(group.trajectories, other.trajectories, strict=True):
            np.testing.assert_array_equal(member.tokens.ids, twin.tokens.ids)
        assert all(own.baseline is None for own in estimator_inputs(group, Signals()))


def test_the_greedy_episode_is_in_no_statistic() -> None:
    groups = collect("greedy", runner())
    credits = estimate(groups, Signals(), make_algorithm("remax", {}))
    found = rollout_metrics(groups)
    bare = [Group(group.id, group.trajectories) for group in groups]
    assert rollout_metrics(bare).items() <= found.items()
    assert found["baseline_rollouts/episodes"] == len(groups)
    assert found["baseline_rollouts/tokens_sampled"] > 0
    for group in groups:
        assert group.baseline_rollouts[0].id not in credits.advantages
        for member in group.trajectories:
            sampled = credits.advantages[member.id][member.tokens.mask]
            np.testing.assert_allclose(
                sampled, member.reward - group.baseline_rollouts[0].reward, rtol=1e-6
            )


def test_a_greedy_episode_without_a_grade() -> None:
    groups = collect("greedy", runner(kind=Strict))
    baselines = [group.baseline_rollouts[0].reward for group in groups]
    assert None in baselines
    for group, baseline in zip(groups, baselines, strict=True):
        expected = np.nan if baseline is None else baseline
        for own in estimator_inputs(group, Signals()):
            np.testing.assert_equal(own.baseline, expected)
    strict = runner(kind=Strict)
    strict = replace(strict, limits=strict.limits.model_copy(update={"max_ungraded_share": 0.01}))
    with pytest.raises(RunStoppedError, match="of 20 episodes"):
        collect("greedy", strict)


@pytest.mark.long
def test_replays_give_every_turn_its_value() -> None:
    """A pull is worth 0.2 on average, whatever was pulled before."""
    groups = collect("turn_replays", runner(), 2, replays=12)
    first = []
    mean = 0.5 * SAFE_PAY + 0.5 * RISKY_CHANCE
    for group in groups:
        assert len(group.baseline_rollouts) == 2 * PULLS * 12
        assert {child.parent for child in group.baseline_rollouts} == {0, 1}
        inputs = estimator_inputs(group, Signals())
        for member, own in zip(group.trajectories, inputs, strict=True):
            paid = np.cumsum([0.0, *(turn.step.reward for turn in member.turns if turn.step)])
            expected = paid + mean * np.arange(PULLS, -1, -1)
            np.testing.assert_allclose(own.turn_values, expected, atol=0.9)
            assert own.turn_values[-1] == member.reward
            first.append(own.turn_values[0])
    assert abs(np.mean(first) - 0.6) < 0.25


def test_ungraded_episodes_are_not_replayed() -> None:
    groups = collect("turn_replays", runner(kind=Strict), 4, replays=1)
    ungraded = [m for g in groups for m in g.trajectories if m.reward is None]
    assert ungraded
    assert not {member.id for member in ungraded} & {
        (child.group, child.parent) for group in groups for child in group.baseline_rollouts
    }
    credits = estimate(groups, Signals(), make_algorithm("counterfactual", {}))
    assert set(credits.advantages) == {member.id for group in groups for member in group.graded}
    assert all(np.isfinite(own).all() for own in credits.advantages.values())


FEW = 2
MEAN = 0.5 * SAFE_PAY + 0.5 * RISKY_CHANCE


def keeping(snapshots: bool = True) -> RolloutRunner:
    """A policy that pulls either arm with probability one half."""
    return replace(runner(pulls=FEW), snapshots=snapshots)


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
        assert len(child.turns) == FEW
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
        assert values.criticality_errors.shape == (FEW,)


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
