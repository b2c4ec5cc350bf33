"""One number per trajectory, from the rewards of its group.

Pure float64 numpy on float64[n] rewards of graded members. A group of one, and one whose rewards
are all equal, compares nothing: its advantages are exactly 0.

Next: `algorithms/objectives.py`.
"""

from math import comb

import numpy as np

from turnwise.algorithms.estimators import Floats, of_rewards
from turnwise.algorithms.parts import Trait, part
from turnwise.conflicts import Need
from turnwise.errors import ConfigError
from turnwise.ranges import Count

STANDARD_DEVIATION_FLOOR = 1e-6


def grpo(rewards: Floats) -> Floats:
    """(R_i - mean) / (std + 1e-6), std with n-1 degrees of freedom (arXiv 2402.03300, 4.1.2)."""
    deviations = dr_grpo(rewards)
    if not differing(rewards):
        return deviations
    scale = float(np.std(rewards, ddof=1)) + STANDARD_DEVIATION_FLOOR
    return deviations / scale


@part("estimator", "dr_grpo", "less the group's mean (arXiv 2503.20783)", of=of_rewards)
def dr_grpo(rewards: Floats) -> Floats:
    """R_i - mean: no division weights easy and hard groups up (arXiv 2503.20783, 3.2)."""
    check_finite(rewards)
    if not differing(rewards):
        return np.zeros(len(rewards))
    return rewards - float(rewards.mean())


@part("estimator", "rloo", "less the mean of the group's others (arXiv 2402.14740)", of=of_rewards)
def rloo(rewards: Floats) -> Floats:
    """R_i - mean of the others = n/(n-1) (R_i - mean) (RLOO, arXiv 2402.14740, equation 7)."""
    deviations = dr_grpo(rewards)
    return deviations * len(rewards) / max(len(rewards) - 1, 1)


@part(
    "estimator",
    "max_rl",
    "(R - mean) / mean (arXiv 2602.02710)",
    of=of_rewards,
    conditions=[Need.REWARDS_FROM_0],
    traits=(Trait.NO_SHAPING, Trait.NO_PENALTY),
)
def max_rl(rewards: Floats) -> Floats:
    """(R_i - mean) / mean, 0 if all are 0 (arXiv 2602.02710). ConfigError for a negative one."""
    check_finite(rewards)
    if len(rewards) and rewards.min() < 0:
        raise ConfigError(
            f"estimator max_rl divides by the mean reward, and one is {rewards.min():g}: choose "
            "another estimator, or rewards that are not negative"
        )
    deviations = dr_grpo(rewards)
    return deviations / float(rewards.mean()) if deviations.any() else deviations


@part(
    "estimator",
    "pass_at_k",
    "best of k of the group (arXiv 2508.10751)",
    of=of_rewards,
    conditions=[Need.REWARDS_0_AND_1],
    traits=(Trait.NO_SHAPING, Trait.NO_PENALTY),
)
def pass_at_k(rewards: Floats, k: Count = 4) -> Floats:
    """GRPO's advantage of all subsets of k trajectories, with their best one's reward, averaged
    over the subsets that a trajectory is in; closed form for rewards of 0 and 1.

    With c of n right: mean 1 - C(n-c, k) / C(n, k), std its binomial one; a wrong trajectory's
    subsets fail with C(n-c-1, k-1) / C(n-1, k-1). Source: Pass@k Training (arXiv 2508.10751),
    analytical derivation. Raises ConfigError for other rewards; 0 for fewer than k trajectories.
    """
    check_finite(rewards)
    right = rewards == 1.0
    if not (right | (rewards == 0.0)).all():
        other = rewards[~right & (rewards != 0.0)][0]
        raise ConfigError(
            f"estimator pass_at_k is for rewards of 0 and 1, and one is {other:g}: choose another "
            "estimator, or another reward"
        )
    n, c = len(rewards), int(right.sum())
    if n < k or c in (0, n):
        return np.zeros(n)
    mean = 1 - comb(n - c, k) / comb(n, k)
    std = (mean * (1 - mean)) ** 0.5
    if std == 0:  # each subset has a right one
        return np.zeros(n)
    fails = comb(n - c - 1, k - 1) / comb(n - 1, k - 1)
    advantages: Floats = np.where(right, (1 - mean) / std, (1 - mean - fails) / std)
    return advantages


def opo(rewards: Floats, lengths: Floats) -> Floats:
    """R_i - sum l_j R_j / sum l_j: the baseline of least variance if a trajectory's squared
    gradient grows with its l sampled tokens; it holds the own reward (arXiv 2505.23585)."""
    check_finite(rewards)
    if not differing(rewards) or not lengths.sum():
        return np.zeros(len(rewards))
    return rewards - float(rewards @ lengths) / float(lengths.sum())


def differing(rewards: Floats) -> bool:
    """Whether the rewards are not all the same number; False for fewer than two."""
    # Not by deviations: the mean of equal rewards is rounded, and would leave some.
    return len(rewards) > 1 and bool(rewards.min() != rewards.max())


def check_finite(rewards: Floats) -> None:
    """Raise ValueError for NaN or infinity among rewards: a verifier's bug, never trained on."""
    if not np.isfinite(rewards).all():
        position = int(np.flatnonzero(~np.isfinite(rewards))[0])
        raise ValueError(f"reward {position} of the group is {rewards[position]}")
