"""Credit in trees of episodes: what a token is worth that several episodes share.

A token stands once in a batch, with the episode that sampled it, and gets there what all episodes
that go through it have together. Each function gives float64[K_i] for each episode. Pure float64
numpy.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from turnwise.algorithms.estimators import EstimatorInput, Floats, of_turns, totals
from turnwise.algorithms.outcome_advantages import grpo
from turnwise.algorithms.parts import Requirement, Trait, part
from turnwise.algorithms.turns import TurnNumbers
from turnwise.conflicts import Need


@part(
    "estimator",
    "tree_grpo",
    of=of_turns,
    needs=[Requirement.BRANCHES],
    conditions=[Need.PLAIN_SUM],
    traits=[Trait.NO_PENALTY],
)
def tree_grpo(group: Sequence[EstimatorInput]) -> TurnNumbers:
    """A_i = z_tree(R_i) + z_group(R_i) of each episode, over the length |H_i| of its path, what it
    shares included; a turn that episodes share has the sum over them.

    With `sequence_mean_token_sum` that is the paper's objective, the mean over episodes of 1/|H_i|
    sum_t A_i over all tokens of the path: it does not depend on which episode sampled the shared
    ones. Its clip sees the sum where the paper's sees each episode's own. Source: Tree-GRPO (arXiv
    2509.21240), both z-scores as in the paper and its program's `tree`. Raises ValueError where the
    rollout did not branch.
    """
    rewards = totals(group)
    within = np.zeros(len(group))
    trees = np.array(roots(group), np.int64)
    for tree in np.unique(trees):
        within[trees == tree] = grpo(rewards[trees == tree])
    return path_sum(group, (within + grpo(rewards)) / np.maximum(path_lengths(group), 1))


@part("estimator", "arpo", of=of_turns, needs=[Requirement.BRANCHES], traits=[Trait.NO_PENALTY])
def arpo(group: Sequence[EstimatorInput]) -> TurnNumbers:
    """Each episode's reward z-scored in the group; a turn that episodes share has their mean.

    Source: ARPO (arXiv 2507.19849), hard attribution. Raises ValueError without branches.
    """
    return path_mean(group, grpo(totals(group)))


@part(
    "estimator", "arpo_soft", of=of_turns, needs=[Requirement.BRANCHES], traits=[Trait.NO_PENALTY]
)
def arpo_soft(group: Sequence[EstimatorInput]) -> TurnNumbers:
    """A_k = the sum of the z-scores of the episodes that share turn k: what GRPO does when each
    trains its own copy of it, since the importance ratios of all copies are equal.

    With token_mean its gradient is that of the copies but for one factor: the number of tokens,
    copies counted, over that without. Source: ARPO (arXiv 2507.19849), soft attribution. Raises
    ValueError without branches.
    """
    return path_sum(group, grpo(totals(group)))


def path_lengths(group: Sequence[EstimatorInput]) -> Floats:
    """float64[n]: tokens sampled on the way to each episode's end, by others too."""
    lengths = np.zeros(len(group))
    for index in range(len(group)):
        for owner, end in _path(group, index):
            # Of an ancestor only the turns before the branch are on this episode's way.
            sampled = group[owner].mask & (group[owner].turn < end)
            lengths[index] += sampled.sum()
    return lengths


def path_sum(group: Sequence[EstimatorInput], numbers: Floats) -> TurnNumbers:
    """The sum for each turn of the numbers, float64[n], of all episodes through it; 0 for inherited
    ones."""
    sums = [np.zeros(episode.turns) for episode in group]
    for index, number in enumerate(numbers):
        for owner, end in _path(group, index):
            # Kept where the turn was sampled: that episode alone has its tokens in the loss.
            sums[owner][group[owner].first_turn : end] += number
    return sums


def path_mean(group: Sequence[EstimatorInput], numbers: Floats) -> TurnNumbers:
    """The mean for each turn of the numbers, float64[n], of all episodes through it; 0 for
    inherited."""
    counts = path_sum(group, np.ones(len(group)))
    sums = path_sum(group, numbers)
    return [total / np.maximum(count, 1) for total, count in zip(sums, counts, strict=True)]


def roots(group: Sequence[EstimatorInput]) -> list[int]:
    """The index, for each episode, of the one that its tree began with."""
    found = []
    for index in range(len(group)):
        while (parent := _parent(group[index])) != index:
            index = parent
        found.append(index)
    return found


def _path(group: Sequence[EstimatorInput], index: int) -> Iterator[tuple[int, int]]:
    """The samplers of an episode's turns, up to the root, each with the turn before which its share
    ends."""
    owner, end = index, group[index].turns
    while True:
        yield owner, end
        first, parent = group[owner].first_turn, _parent(group[owner])
        if parent == owner:
            return
        # A branch before its parent's own first turn shares nothing that the parent sampled.
        owner, end = parent, min(first, end)


def _parent(episode: EstimatorInput) -> int:
    if episode.parent is None:
        raise ValueError("this estimator needs episodes that branch off, and the rollout has none")
    return episode.parent
