"""Which groups of a batch are trained on at all; the others leave the denominators too.

Pure numpy, on the rewards of each group's graded members. Which filters ask for other groups in
place of those that they drop is the trainer's business.
"""

from collections.abc import Callable, Sequence

import numpy as np

from turnwise.algorithms.episodes import Floats
from turnwise.algorithms.outcomes import differing

GroupFilter = Callable[..., list[bool]]
"""(rewards of each group, **numbers) -> whether each is kept."""


def every(rewards: Sequence[Floats]) -> list[bool]:
    """All of them: groups that teach nothing stay in the denominators, as in GRPO."""
    return [True] * len(rewards)


def unequal(rewards: Sequence[Floats]) -> list[bool]:
    """Those whose rewards are not all equal: dynamic sampling (DAPO, arXiv 2503.14476, 3.2)."""
    return [differing(group) for group in rewards]


def top_spread(rewards: Sequence[Floats], share: float) -> list[bool]:
    """The share of groups with the largest standard deviation of rewards, at least one of them;
    never one whose rewards are all equal. Equal deviations: the earlier group first.

    Source: StarPO-S (RAGEN, arXiv 2504.20073).
    """
    spreads = np.array([_deviation(group) for group in rewards])
    count = max(1, round(share * len(rewards)))
    best = set(np.argsort(-spreads, kind="stable")[:count].tolist())
    return [index in best and differing(group) for index, group in enumerate(rewards)]


def top_variance(rewards: Sequence[Floats], mass: float) -> list[bool]:
    """The fewest groups that together have that share of all variance of rewards.

    Source: RAGEN-2 (arXiv 2604.06268), linear top-p.
    """
    variances = np.array([_deviation(group) ** 2 for group in rewards])
    order = np.argsort(-variances, kind="stable")
    before = np.cumsum(variances[order]) - variances[order]
    chosen = set(order[before < mass * variances.sum()].tolist())
    return [index in chosen and differing(group) for index, group in enumerate(rewards)]


GROUP_FILTERS: dict[str, GroupFilter] = {
    "none": every,
    "all_equal": unequal,
    "top_spread": top_spread,
    "top_variance": top_variance,
}


def _deviation(rewards: Floats) -> float:
    return float(rewards.std()) if differing(rewards) else 0.0
