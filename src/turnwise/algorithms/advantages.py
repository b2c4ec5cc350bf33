"""From the rewards of one group to an advantage per trajectory, and from that to one per token.

Pure float64 numpy. Ungraded trajectories never come here: the caller passes graded rewards only,
so they are in no baseline. Not here: rewards per turn, critics, whitening over a batch.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Estimator = Callable[[Floats], Floats]
"""Rewards float64[n] of one group's graded members -> advantages float64[n].

Raises ValueError when a reward is NaN or infinite: that is a verifier's bug, never a number.
"""
GroupFilter = Callable[[Floats], bool]
"""Rewards float64[n] of one group's graded members -> whether the group is in the batch at all."""

STANDARD_DEVIATION_FLOOR = 1e-6


def grpo(rewards: Floats) -> Floats:
    """(R_i - mean) / (std + 1e-6), std with n-1 degrees of freedom.

    A group of one, or one whose rewards are all equal, compares nothing: exactly 0.
    Source: DeepSeekMath (arXiv 2402.03300), equation 3 with outcome supervision (4.1.2).
    """
    deviations = dr_grpo(rewards)
    if not differing(rewards):
        return deviations
    scale = float(np.std(rewards, ddof=1)) + STANDARD_DEVIATION_FLOOR
    return deviations / scale


def dr_grpo(rewards: Floats) -> Floats:
    """R_i - mean: no division, so that easy and hard groups are not weighted up.

    A group of one, or one whose rewards are all equal: exactly 0.
    Source: Understanding R1-Zero-like Training (arXiv 2503.20783), section 3.2.
    """
    _check_finite(rewards)
    if not differing(rewards):
        return np.zeros(len(rewards))
    return rewards - float(rewards.mean())


def rloo(rewards: Floats) -> Floats:
    """R_i - mean of the others = n/(n-1) (R_i - mean).

    A group of one has no others: 0. Rewards all equal: exactly 0.
    Source: Back to Basics (arXiv 2402.14740), equation 7.
    """
    deviations = dr_grpo(rewards)
    return deviations * len(rewards) / max(len(rewards) - 1, 1)


def reinforce(rewards: Floats) -> Floats:
    """R_i itself. It compares with nothing, so a group of one is like any other group.

    Source: Williams 1992, without a baseline.
    """
    _check_finite(rewards)
    return rewards.copy()


ESTIMATORS: dict[str, Estimator] = {
    "grpo": grpo,
    "dr_grpo": dr_grpo,
    "rloo": rloo,
    "reinforce": reinforce,
}


def differing(rewards: Floats) -> bool:
    """Whether the rewards are not all the same number; False for fewer than two."""
    return len(rewards) > 1 and bool(rewards.min() != rewards.max())


def every_group(rewards: Floats) -> bool:
    """True: groups that teach nothing stay in the denominators, as in GRPO."""
    return True


GROUP_FILTERS: dict[str, GroupFilter] = {"none": every_group, "all_equal": differing}
"""`all_equal` takes groups whose rewards are all equal out of the batch, denominators included:
DAPO's dynamic sampling (arXiv 2503.14476, section 3.2) without the sampling of new groups."""


def token_advantages(value: float, mask: NDArray[np.bool_]) -> NDArray[np.float32]:
    """The trajectory's advantage on each sampled token, 0 on all others: float32[n]."""
    return np.where(mask, np.float32(value), np.float32(0))


def _check_finite(rewards: Floats) -> None:
    if not np.isfinite(rewards).all():
        position = int(np.flatnonzero(~np.isfinite(rewards))[0])
        raise ValueError(f"reward {position} of the group is {rewards[position]}")
