"""Groups that are trees: who branches where, what is shared, and that it repeats.

A policy that pulls one of two arms by chance, three times; its log-probabilities are told by the
turn, so that it is clear where it is less certain.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from tests.fakes import Arms
from tests.rollout.playing import TOKENIZER, encode
from turnwise.config import RolloutConfig
from turnwise.engines.base import Completion, Sampling
from turnwise.engines.scripted import ScriptedEngine
from turnwise.errors import RunStoppedError
from turnwise.rollout.priority_semaphore import PrioritySemaphore
from turnwise.rollout.runner import RolloutRunner
from turnwise.scaffolds.tags import TagsScaffold
from turnwise.seeds import derive
from turnwise.tokens import Source
from turnwise.types import Group, Trajectory, Verdict
from turnwise_algorithms.tree_rollouts import (
    entropy_branches,
    random_branches,
    roots_of,
    turn_entropy,
)

PULLS = 3
SURE, UNSURE = -0.1, -6.0


class Telling(ScriptedEngine):
    """Its tokens of turn k all have the k-th log-probability."""

    def __init__(self, logprobs: Sequence[float]) -> None:
        super().__init__(lambda session, prompt: [])
        self._logprobs = logprobs

    async def generate(
        self, prompt: Sequence[int], sampling: Sampling, *, session: str
    ) -> Completion:
        said = TOKENIZER.decode(list(prompt))
        names = [part.rpartition(" ")[2] for part in said.split(" arm")[:2]]
        arm = random.Random(sampling.seed).choice(names)
        self._policy = lambda session, prompt: encode(f"<pull> {arm}</pull>")
        completion = await super().generate(prompt, sampling, session=session)
        logprob = self._logprobs[said.count("</pull>")]
        return Completion(
            completion.tokens, [logprob] * len(completion.tokens), completion.stop_reason, 0
        )


class Strict(Arms):
    """Cannot grade some of the episodes."""

    async def verify(self, trajectory: Trajectory) -> Verdict:
        if derive(trajectory.seed, "grade") % 3 == 0:
            raise RuntimeError("no grade")
        return await super().verify(trajectory)


def runner(
    logprobs: Sequence[float] = (SURE,) * PULLS, kind: type[Arms] = Arms, pulls: int = PULLS
) -> RolloutRunner:
    environment = kind(pulls)
    scaffold = TagsScaffold(TOKENIZER, environment.tools(), instructions="")
    share = 0.0 if kind is Arms else 1.0
    limits = RolloutConfig(
        max_turns=4, max_turn_tokens=60, max_tokens=900, max_ungraded_share=share
    )
    return RolloutRunner(environment, scaffold, Telling(logprobs), limits, PrioritySemaphore(64))


def random_trees(
    made: RolloutRunner, size: int, trees: int, expansions: int, rounds: int
) -> list[Group]:
    tasks = made.environment.tasks("train")
    work = random_branches(made, tasks, size, 0, "test", trees, expansions, rounds)
    return asyncio.run(work)


def rising_trees(made: RolloutRunner, size: int = 8, share: float = 0.5) -> list[Group]:
    tasks = made.environment.tasks("train")
    return asyncio.run(entropy_branches(made, tasks, size, 0, "test", share, 0.5, 0.2, 20))


def check_shared(group: Group) -> None:
    """A branch has its parent's past, token for token, and trains none of it."""
    assert [member.episode for member in group.trajectories] == list(range(len(group.trajectories)))
    for member in group.trajectories:
        mine = member.tokens
        assert (mine.turn[mine.mask] >= member.first_turn).all()
        if member.parent == member.episode:
            assert member.first_turn == 0
            assert not (mine.source == Source.INHERITED).any()
            continue
        parent = group.trajectories[member.parent]
        assert member.parent < member.episode
        end = int(np.flatnonzero(mine.mask)[0])
        np.testing.assert_array_equal(mine.ids[:end], parent.tokens.ids[:end])
        sampled = np.isin(parent.tokens.source[:end], (Source.MODEL, Source.INHERITED))
        np.testing.assert_array_equal(mine.source[:end] == Source.INHERITED, sampled)
        assert member.turns[: member.first_turn] == parent.turns[: member.first_turn]


def test_random_branches_make_trees_of_the_asked_size() -> None:
    for group in random_trees(runner(), 14, 2, 3, 2):
        check_shared(group)
        assert Counter(roots_of(group)) == {0: 7, 1: 7}
        assert all(len(member.turns) == PULLS for member in group.trajectories)
        branches = [m for m in group.trajectories if m.parent != m.episode]
        assert all(m.first_turn in (1, 2) for m in branches)
        first_round = [(m.parent, m.first_turn) for m in branches if m.episode < 8]
        per_tree = [[place for place in first_round if place[0] == tree] for tree in (0, 1)]
        for places in per_tree:  # two inner turns for three branches: both, and one of them again
            assert sorted(Counter(places).values()) == [1, 2]


def test_later_rounds_branch_off_branches_too() -> None:
    groups = random_trees(runner(), 18, 2, 2, 4)
    depth: dict[tuple[str, int], int] = {}
    for group in groups:
        check_shared(group)
        for m in group.trajectories:
            here = 0 if m.parent == m.episode else depth[group.id, m.parent] + 1
            depth[group.id, m.episode] = here
    assert max(depth.values()) == 2  # a third pull is a leaf


def test_a_tree_of_one_turn_is_played_anew_from_before_it() -> None:
    for group in random_trees(runner((SURE,), pulls=1), 8, 2, 3, 1):
        check_shared(group)
        assert all(m.first_turn == 0 for m in group.trajectories)
        assert Counter(roots_of(group)) == {0: 4, 1: 4}


def test_branches_where_the_policy_became_less_certain() -> None:
    """Sure, sure, then unsure: P(1) = 0.5, P(2) = 1, and the group is filled with branches."""
    for group in rising_trees(runner((SURE, SURE, UNSURE))):
        check_shared(group)
        assert len(group.trajectories) == 8
        branches = [m for m in group.trajectories if m.parent != m.episode]
        assert [m.episode for m in branches] == [4, 5, 6, 7]
        turns = Counter((m.parent, m.first_turn) for m in branches)
        assert max(turns.values()) == 1  # two branches at a turn: the parent's and one more


def test_no_branches_where_it_became_more_certain() -> None:
    """What the budget leaves is played from the beginning."""
    for group in rising_trees(runner((UNSURE, SURE, SURE))):
        check_shared(group)
        assert roots_of(group) == list(range(8))


def test_branches_branch_again_while_there_is_room() -> None:
    groups = rising_trees(runner((SURE, UNSURE, UNSURE)), size=10, share=0.1)
    for group in groups:
        check_shared(group)
        branches = [(m.parent, m.first_turn) for m in group.trajectories[1:4]]
        assert branches == [(0, 1), (0, 2), (1, 2)]
        assert roots_of(group) == [0, 0, 0, 0, 4, 5, 6, 7, 8, 9]


def test_the_chance_of_a_branch_is_the_stated_one() -> None:
    """With no rise, one half: 4 tasks, 10 episodes each with 2 turns after tools."""
    groups = rising_trees(runner(), size=24, share=10 / 24)
    new = [m for g in groups for m in g.trajectories if m.parent is not None and m.parent < 10]
    branches = [m for m in new if m.parent != m.episode]
    assert abs(len(branches) - 40) < 2 * np.sqrt(80 / 4)


def test_entropy_is_estimated_from_the_first_tokens_of_the_turn() -> None:
    trajectory = rising_trees(runner(), size=1)[0].trajectories[0]
    sampled = np.flatnonzero(trajectory.tokens.mask & (trajectory.tokens.turn == 1))
    logprob = trajectory.tokens.logprob.copy()
    logprob[sampled[:3]] = [-1.0, -2.0, -6.0]
    trajectory = replace(trajectory, tokens=replace(trajectory.tokens, logprob=logprob))
    assert turn_entropy(trajectory, 1, 3) == pytest.approx(3.0)
    assert turn_entropy(trajectory, 1, 1) == pytest.approx(1.0)
    assert np.isnan(turn_entropy(trajectory, 9, 3))


@pytest.mark.parametrize("made", ["random", "rising"])
def test_ungraded_episodes_are_not_branched_from(made: str) -> None:
    strict = runner((SURE, UNSURE, UNSURE), Strict)
    groups = random_trees(strict, 10, 2, 2, 2) if made == "random" else rising_trees(strict, 10)
    assert any(m.reward is None for g in groups for m in g.trajectories)
    for group in groups:
        check_shared(group)
        assert len(group.trajectories) == 10


def test_trees_repeat_with_the_seed() -> None:
    for make in (lambda: random_trees(runner(), 8, 2, 3, 1), lambda: rising_trees(runner())):
        first, again = make(), make()
        for group, other in zip(first, again, strict=True):
            for member, twin in zip(group.trajectories, other.trajectories, strict=True):
                assert member.seed == twin.seed
                assert (member.parent, member.first_turn) == (twin.parent, twin.first_turn)
                np.testing.assert_array_equal(member.tokens.ids, twin.tokens.ids)
                assert member.reward == twin.reward


def test_ungraded_episodes_are_counted_over_all_rounds() -> None:
    strict = runner(kind=Strict)
    limits = strict.limits.model_copy(update={"max_ungraded_share": 0.05})
    object.__setattr__(strict, "limits", limits)
    with pytest.raises(RunStoppedError, match="of 40 episodes could not be graded"):
        random_trees(strict, 10, 2, 2, 2)
