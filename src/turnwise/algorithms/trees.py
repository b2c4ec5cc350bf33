"""Credit in trees of episodes: what a token is worth that several episodes share.

An episode that branches off sampled its own turns from `first_turn` on; those before it are its
parent's. A token stands once in a batch, with the episode that sampled it, and gets there what all
episodes that go through it have together. Each function gives a list with float64[K_i] for each
episode. Pure float64 numpy. Not here: which turns are branched at (`rollout/trees.py`).
"""

from collections.abc import Sequence

import numpy as np

from turnwise.algorithms.episodes import Episode, Floats
from turnwise.algorithms.outcomes import grpo

TurnNumbers = list[Floats]


def tree_grpo(group: Sequence[Episode]) -> TurnNumbers:
    """Each episode's reward z-scored in its tree plus z-scored in the group; a turn that episodes
    share has their mean.

    What a whole tree shares is thus compared with other trees alone. A tree of one compares nothing
    in itself. Source: Tree-GRPO (arXiv 2509.21240), the sum as in the paper; the published code
    normalises twice in a row. There every episode trains its own copy of what it shares. Raises
    ValueError where the rollout did not branch.
    """
    rewards = _totals(group)
    within = np.zeros(len(group))
    trees = np.array(roots(group), np.int64)
    for tree in np.unique(trees):
        within[trees == tree] = grpo(rewards[trees == tree])
    return path_mean(group, within + grpo(rewards))


def arpo(group: Sequence[Episode]) -> TurnNumbers:
    """Each episode's reward z-scored in the group; a turn that episodes share has their mean.

    Source: ARPO (arXiv 2507.19849), hard attribution. Raises ValueError where the rollout did not
    branch.
    """
    return path_mean(group, grpo(_totals(group)))


def arpo_soft(group: Sequence[Episode]) -> TurnNumbers:
    """The same with the sum in place of the mean: what GRPO does when every episode trains its own
    copy of what it shares, since the importance ratios of all copies are equal.

    With the aggregation token_mean its gradient is that of the copies but for one factor: the
    number of tokens, copies counted, over that without. Source: ARPO (arXiv 2507.19849), soft
    attribution. Raises ValueError where the rollout did not branch.
    """
    return path_sum(group, grpo(_totals(group)))


def path_sum(group: Sequence[Episode], numbers: Floats) -> TurnNumbers:
    """For each turn the sum of the numbers, float64[n], of all episodes that go through it; 0 for
    turns that an episode inherited."""
    sums = [np.zeros(episode.turns) for episode in group]
    for index, number in enumerate(numbers):
        owner, end = index, group[index].turns
        while True:  # what it sampled itself, then its parent's share, up to the root
            first = group[owner].first_turn
            sums[owner][first:end] += number
            parent = _parent(group[owner])
            if parent == owner:
                break
            owner, end = parent, min(first, end)
    return sums


def path_mean(group: Sequence[Episode], numbers: Floats) -> TurnNumbers:
    """For each turn the mean of the numbers, float64[n], of all episodes that go through it; 0 for
    turns that an episode inherited."""
    counts = path_sum(group, np.ones(len(group)))
    sums = path_sum(group, numbers)
    return [total / np.maximum(count, 1) for total, count in zip(sums, counts, strict=True)]


def roots(group: Sequence[Episode]) -> list[int]:
    """For each episode the index of the one that its tree began with."""
    found = []
    for index in range(len(group)):
        while (parent := _parent(group[index])) != index:
            index = parent
        found.append(index)
    return found


def _parent(episode: Episode) -> int:
    if episode.parent is None:
        raise ValueError("this estimator needs episodes that branch off, and the rollout has none")
    return episode.parent


def _totals(group: Sequence[Episode]) -> Floats:
    return np.array([episode.total for episode in group], np.float64)
