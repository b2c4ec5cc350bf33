"""Groups that are trees: some episodes from the beginning, the others branching off from them.

A branch shares what stands before it, marked INHERITED: each token is trained once, in the episode
that sampled it. Which turns are branched at follows from seeds and finished episodes alone. An
episode without a grade is never branched from.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from turnwise.algorithms.parts import Requirement, part
from turnwise.conflicts import Need
from turnwise.errors import ConfigError
from turnwise.ranges import Count, NonNegative, Share
from turnwise.rollout.runner import RolloutRunner, group_names, new_member
from turnwise.seeds import derive
from turnwise.types import Group, Task, Trajectory
from turnwise_algorithms.branching import branch_at, child_of, sampled_turns

Place = tuple[Trajectory, int]
"""Before a turn of another episode."""


@dataclass(frozen=True)
class Forest:
    """The groups of one occasion while they grow. A member's number is its index in its group."""

    runner: RolloutRunner
    tasks: Sequence[Task]
    groups: list[Group]
    seed: int
    label: str

    @classmethod
    def of(cls, runner: RolloutRunner, tasks: Sequence[Task], seed: int, label: str) -> "Forest":
        groups = [Group(name, ()) for name in group_names(label, tasks)]
        return cls(replace(runner, snapshots=True), tasks, groups, seed, label)

    async def grow(self, places: Sequence[Sequence[Place | None]]) -> list[list[Trajectory]]:
        """Play new members of each group, from the given places; None is the beginning."""
        starts = [
            (
                self._new(task, place, group.id, len(group.trajectories) + number),
                None if place is None else branch_at(*place),
            )
            for group, task, chosen in zip(self.groups, self.tasks, places, strict=True)
            for number, place in enumerate(chosen)
        ]
        played = iter(await self.runner.play(starts))
        grown = [[next(played) for _ in chosen] for chosen in places]
        self.groups[:] = [
            replace(group, trajectories=(*group.trajectories, *made))
            for group, made in zip(self.groups, grown, strict=True)
        ]
        return grown

    def finished(self) -> list[Group]:
        """Raises RunStoppedError when too many of all episodes are ungraded."""
        self.runner.check_ungraded([m for group in self.groups for m in group.trajectories])
        return self.groups

    def _new(self, task: Task, place: Place | None, group: str, episode: int) -> Trajectory:
        if place is not None:
            return child_of(*place, episode, self.seed, self.label)
        return replace(new_member(task, group, episode, self.seed, self.label), parent=episode)


def check_tree_size(group_size: int, trees: int, expansions: int, rounds: int) -> None:
    """Raise ConfigError unless that many trees of 1 + expansions x rounds episodes are a group."""
    episodes = trees * (1 + expansions * rounds)
    if episodes != group_size:
        raise ConfigError(
            f"train.group_size is {group_size}, but trees x (1 + expansions x rounds) is "
            f"{trees} x (1 + {expansions} x {rounds}) = {episodes}: make them equal"
        )


@part(
    "rollout",
    "random_branches",
    needs=[Requirement.RESTORABLE],
    conditions=[Need.OWN_LOOP, Need.ONE_CONTEXT],
    gives=[Requirement.BRANCHES],
    check_size=check_tree_size,
)
async def random_branches(
    runner: RolloutRunner,
    tasks: Sequence[Task],
    group_size: int,
    seed: int,
    label: str,
    trees: Count = 2,
    expansions: Count = 3,
    rounds: Count = 1,
) -> list[Group]:
    """In each round `expansions` new episodes for each tree, from turns drawn from all of it so
    far, another one while there are some.

    A turn here is one after which an episode went on. A tree of one turn is played anew from before
    it (our decision); one without a grade, from the beginning. Source: Tree-GRPO (arXiv
    2509.21240), M trees, N expansions, L rounds. Raises ConfigError as `check_tree_size`.
    """
    check_tree_size(group_size, trees, expansions, rounds)
    forest = Forest.of(runner, tasks, seed, label)
    await forest.grow([[None] * trees for _ in tasks])
    for number in range(rounds):
        places: list[list[Place | None]] = []
        for group in forest.groups:
            roots = roots_of(group)
            chosen: list[Place | None] = []
            for tree in range(trees):
                members = [m for m in group.graded if roots[m.episode] == tree]
                stream = random.Random(derive(seed, "branches", group.id, number, tree))
                chosen += _draw(members, expansions, stream)
            places.append(chosen)
        await forest.grow(places)
    return forest.finished()


@part(
    "rollout",
    "entropy_branches",
    needs=[Requirement.RESTORABLE],
    conditions=[Need.OWN_LOOP, Need.ONE_CONTEXT],
    gives=[Requirement.BRANCHES],
)
async def entropy_branches(
    runner: RolloutRunner,
    tasks: Sequence[Task],
    group_size: int,
    seed: int,
    label: str,
    initial_share: Share = 0.5,
    branch_probability: Share = 0.5,
    entropy_weight: NonNegative = 0.2,
    entropy_tokens: Count = 20,
) -> list[Group]:
    """Branches where a tool's result made the policy less certain.

    A share of the group is played from the beginning. Each turn that follows a tool's result is
    given one branch with probability clip(p + w dH, 0, 1), dH = H - H_first, H the entropy at the
    turn's beginning and H_first that of the tree's first turn; so are the turns of the branches,
    earlier ones first, until the group is full. What is left is played from the beginning.

    H is the negative mean log-probability of the turn's first `entropy_tokens` sampled tokens, in
    nats: whole distributions are not kept, so which turns have branches depends a little on what
    was sampled. The published code sums the entropies of the 10 likeliest tokens over 20 tokens and
    divides by log |V|. Source: ARPO (arXiv 2507.19849), two branches at a turn, p = 0.5, w = 0.2.
    """
    forest = Forest.of(runner, tasks, seed, label)

    def chosen(group: Group, grown: Sequence[Trajectory]) -> list[Place]:
        roots = roots_of(group)
        places = []
        for member, turn in _after_tools(grown):
            first = turn_entropy(group.trajectories[roots[member.episode]], 0, entropy_tokens)
            rise = turn_entropy(member, turn, entropy_tokens) - first
            # By place and seed alone: a resumed run branches where the first one did.
            draw = derive(seed, "branches", group.id, member.episode, turn) / 2**63  # 63 bits
            if draw < branch_probability + entropy_weight * rise:
                places.append((member, turn))
        return places[: group_size - len(group.trajectories)]

    initial = min(max(1, round(initial_share * group_size)), group_size)
    new = await forest.grow([[None] * initial for _ in tasks])
    while any(places := list(map(chosen, forest.groups, new))):
        new = await forest.grow(places)
    await forest.grow([[None] * (group_size - len(g.trajectories)) for g in forest.groups])
    return forest.finished()


def turn_entropy(trajectory: Trajectory, turn: int, tokens: int) -> float:
    """Negative mean log-probability of a turn's first sampled tokens, in nats; NaN without any."""
    record = trajectory.tokens
    logprobs = record.logprob[record.mask & (record.turn == turn)][:tokens]
    return -float(logprobs.mean(dtype=np.float64)) if len(logprobs) else float("nan")


def roots_of(group: Group) -> list[int]:
    """For each member the number of the one that its tree began with."""
    roots: list[int] = []
    for member in group.trajectories:
        parent = member.episode if member.parent is None else member.parent
        roots.append(parent if parent == member.episode else roots[parent])
    return roots


def _draw(members: Sequence[Trajectory], count: int, stream: random.Random) -> list[Place | None]:
    """Turns to branch at: none twice while there are others."""
    inner: list[Place] = [
        (member, turn)
        for member in members
        for turn in sampled_turns(member)
        if turn > member.first_turn
    ]
    places: list[Place | None] = [*(inner or [(member, member.first_turn) for member in members])]
    if not places:
        return [None] * count
    # Around again from the first, so that no turn has two branches more than another.
    order = stream.sample(places, len(places))
    return [order[index % len(order)] for index in range(count)]


def _after_tools(members: Sequence[Trajectory]) -> list[Place]:
    """Turns before which a tool gave something back, earlier ones first; not an episode's first,
    where it branched off itself."""
    found: list[Place] = []
    for member in members:
        if member.reward is None:
            continue
        for turn in sampled_turns(member):
            # Before its first own turn a branch stands where its parent was branched already.
            step = member.turns[turn - 1].step if turn > member.first_turn else None
            if step is not None and step.results:
                found.append((member, turn))
    return sorted(found, key=lambda place: (place[1], place[0].episode))
