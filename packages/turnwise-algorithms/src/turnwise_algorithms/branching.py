"""Episodes that begin in the middle of another one: what a turn was worth, by playing on from it.
Groups with episodes beside them, only to judge their members by.

What a branch shares with its parent is marked INHERITED: it is trained once, in the parent.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from turnwise.algorithms.estimators import mean_reward
from turnwise.algorithms.parts import Requirement, part
from turnwise.conflicts import Need
from turnwise.errors import NotSupportedError
from turnwise.ranges import Count
from turnwise.rollout.runner import RolloutRunner, new_groups, new_member
from turnwise.seeds import derive
from turnwise.tokens import NO_VERSION, Source, Tokens
from turnwise.types import Branch, Group, Task, Trajectory


@dataclass(frozen=True)
class TurnValues:
    """Monte-Carlo values of an episode of K turns under the policy that plays on."""

    values: NDArray[np.float64]
    """float64[K+1]: mean reward of episodes from before turn k; last, the own reward."""
    errors: NDArray[np.float64]
    """float64[K+1]: standard errors of the values; 0 for the last."""
    counts: NDArray[np.int64]
    """int64[K]: graded episodes behind each value."""

    @property
    def criticality(self) -> NDArray[np.float64]:
        """float64[K]: by how much each turn changed what was to be expected."""
        return np.diff(self.values)

    @property
    def criticality_errors(self) -> NDArray[np.float64]:
        """float64[K]: standard errors of the differences."""
        # Neighbouring values come from different episodes, so their errors are independent.
        return np.hypot(self.errors[1:], self.errors[:-1])


def sampled_turns(member: Trajectory) -> list[int]:
    """The turns in which something was sampled, without those that an episode inherited."""
    turns: list[int] = np.unique(member.tokens.turn[member.tokens.mask]).tolist()
    return turns


def branch_at(parent: Trajectory, turn: int) -> Branch:
    """The moment before a turn of an episode whose snapshots were kept.

    Raises NotSupportedError where they were not, or it has several contexts; IndexError for a turn
    that there was not, or that the episode inherited.
    """
    if not parent.snapshots:
        raise NotSupportedError("branching needs the environment's snapshots: roll out with them")
    if not 0 <= turn - parent.first_turn < len(parent.snapshots):
        raise IndexError(f"episode {parent.episode} has no turn {turn} of its own")
    tokens = parent.tokens
    if len(tokens.contexts) > 1:
        raise NotSupportedError("an episode of several contexts cannot be branched from")
    own = tokens.mask & (tokens.turn >= turn)
    # Up to the first sampled token: what was said to the policy before the turn is shared, too.
    end = int(np.flatnonzero(own)[0]) if own.any() else len(tokens)
    source = tokens.source[:end].copy()
    source[source == Source.MODEL] = Source.INHERITED
    prefix = Tokens(
        tokens.ids[:end],
        source,
        tokens.turn[:end],
        # No versions and no log-probabilities: these tokens are trained in the parent.
        np.full(end, NO_VERSION, np.int32),
        np.full(end, np.nan, np.float32),
        images=tokens.images_in(slice(0, end)),
        experts=None if tokens.experts is None else tokens.experts[:end],
    )
    state = parent.snapshots[turn - parent.first_turn]
    return Branch(prefix, parent.turns[:turn], state, parent.first)


def child_of(parent: Trajectory, turn: int, episode: int, seed: int, label: str) -> Trajectory:
    """One that is to be played from before a turn of its parent. The run's seed, `label`, the
    parent's group and number, the turn and the episode determine every random number."""
    return Trajectory(
        parent.task,
        parent.group,
        episode,
        derive(seed, label, parent.group, parent.episode, turn, episode),
        parent=parent.episode,
        first_turn=turn,
    )


async def play_on(
    runner: RolloutRunner,
    branches: Sequence[tuple[Trajectory, int]],
    count: int,
    seed: int,
    label: str,
) -> list[list[Trajectory]]:
    """`count` new episodes from before each (parent, turn), in that order. Raises RunStoppedError
    when more than `max_ungraded_share` of them are ungraded."""
    starts: list[tuple[Trajectory, Branch | None]] = []
    for parent, turn in branches:
        start = branch_at(parent, turn)
        starts += [(child_of(parent, turn, n, seed, label), start) for n in range(count)]
    played = await runner.play(starts)
    runner.check_ungraded(played)
    rest = iter(played)
    return [[next(rest) for _ in range(count)] for _ in branches]


async def turn_values(
    runner: RolloutRunner, parents: Sequence[Trajectory], count: int, seed: int, label: str
) -> list[TurnValues]:
    """The worth of each turn of each graded parent, by `count` episodes from before it: unbiased
    for the policy that plays on. Raises ValueError for an ungraded parent."""
    if any(parent.reward is None for parent in parents):
        raise ValueError("an ungraded episode has no value to compare with")
    played = await play_on_from_every_turn(runner, parents, count, seed, label)
    return [values_of(parent, rows) for parent, rows in zip(parents, played, strict=True)]


async def play_on_from_every_turn(
    runner: RolloutRunner, parents: Sequence[Trajectory], count: int, seed: int, label: str
) -> list[list[list[Trajectory]]]:
    """`count` new episodes from before each own turn of each parent."""
    own = [range(p.first_turn, p.first_turn + len(p.snapshots)) for p in parents]
    places = [(p, turn) for p, turns in zip(parents, own, strict=True) for turn in turns]
    played = iter(await play_on(runner, places, count, seed, label))
    return [[next(played) for _ in turns] for turns in own]


def values_of(parent: Trajectory, played: Sequence[Sequence[Trajectory]]) -> TurnValues:
    """The values of a graded parent's turns, by the episodes that went on from before each."""
    rewards = [[one.reward for one in row if one.reward is not None] for row in played]
    own = parent.reward if parent.reward is not None else np.nan
    return TurnValues(
        np.array([*map(mean_reward, rewards), own]),
        np.array([*map(_standard_error, rewards), 0.0]),
        np.array([len(row) for row in rewards], np.int64),
    )


def _standard_error(rewards: Sequence[float]) -> float:
    """Standard error of the mean; NaN for fewer than two."""
    if len(rewards) < 2:
        return float("nan")
    return float(np.std(rewards, ddof=1) / np.sqrt(len(rewards)))


@part("rollout", "greedy", conditions=[Need.SINGLE_REWARDS], gives=[Requirement.GREEDY])
async def greedy(
    runner: RolloutRunner, tasks: Sequence[Task], group_size: int, seed: int, label: str
) -> list[Group]:
    """Groups, and beside each an episode at temperature 0, the baseline (arXiv 2310.10505)."""
    groups = await runner.play_groups(new_groups(tasks, group_size, seed, label))
    planned = [
        new_member(task, group.id, group_size, seed, label)
        for task, group in zip(tasks, groups, strict=True)
    ]
    cold = replace(runner, limits=runner.limits.unlearned(0.0))
    beside = await cold.play([(episode, None) for episode in planned])
    runner.check_ungraded([m for group in groups for m in group.trajectories] + beside)
    return [
        replace(group, baseline_rollouts=(own,)) for group, own in zip(groups, beside, strict=True)
    ]


@part(
    "rollout",
    "turn_replays",
    needs=[Requirement.RESTORABLE],
    conditions=[Need.OWN_LOOP, Need.ONE_CONTEXT, Need.SINGLE_REWARDS],
    gives=[Requirement.TURN_VALUES],
)
async def turn_replays(
    runner: RolloutRunner,
    tasks: Sequence[Task],
    group_size: int,
    seed: int,
    label: str,
    replays: Count = 4,
) -> list[Group]:
    """Each episode by itself, and beside each graded one `replays` others from before each of its
    turns, whose mean rewards are the values of its turns."""
    groups = await replace(runner, snapshots=True).collect(tasks, group_size, seed, label)
    members = [member for group in groups for member in group.graded]
    beside = replace(runner, limits=runner.limits.unlearned(runner.limits.temperature))
    played = await play_on_from_every_turn(beside, members, replays, seed, f"{label}/replays")
    rows = iter(played)
    return [
        replace(
            group,
            baseline_rollouts=tuple(
                one for _ in group.graded for turn in next(rows) for one in turn
            ),
        )
        for group in groups
    ]
