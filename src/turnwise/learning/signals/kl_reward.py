"""The KL term as a reward: how far each sampled token is from the reference.

Not here: the KL term in the loss (`turnwise.algorithms.losses`), and how its coefficient is adapted
(`turnwise.learning.policy`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from turnwise.learning.signals.base import SignalArrays, Signals, by_trajectory, graded
from turnwise.types import Group, Trajectory

METRIC = "policy/kl_reference"

Scores = Callable[[Sequence[Trajectory]], list[NDArray[np.float64]]]
"""Trajectories -> log-probabilities of their sampled tokens, as `sampled_logprobs` gives them."""


@dataclass(frozen=True)
class KLReward:
    """The `token_rewards` of every graded trajectory: -coefficient log(sampling policy / reference)
    of each sampled token.

    A log-probability that is not finite makes no reward; the update will find it and be skipped.
    Source: arXiv 1909.08593, equation 2; REINFORCE++ (arXiv 2501.03262).
    """

    reference: Scores
    """Scores under the reference model."""
    coefficient: float
    """The coefficient of this step."""

    def measure(self, groups: Sequence[Group]) -> Signals:
        """The metric is the mean of log(sampling policy / reference) over all sampled tokens;
        absent where there are none."""
        members = graded(groups)
        arrays, total, count = [], 0.0, 0
        for member, reference in zip(members, self.reference(members), strict=True):
            drift = member.tokens.logprob - reference
            known = member.tokens.mask & np.isfinite(drift)
            rewards = np.where(known, -self.coefficient * drift, 0.0)
            arrays.append(SignalArrays(token_rewards=rewards))
            total, count = total + float(drift[known].sum()), count + int(known.sum())
        metrics = {METRIC: total / count} if count else {}
        return Signals(by_trajectory(members, arrays), metrics)
