"""The KL term as a reward: how far each sampled token is from the reference."""

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
    """`token_rewards`: -coefficient log(sampling policy / reference) of each sampled token, 0 where
    that is not finite.

    Source: arXiv 1909.08593, equation 2; REINFORCE++ (arXiv 2501.03262).
    """

    reference: Scores
    """Scores under the reference model."""
    coefficient: float
    """The coefficient of this step."""

    def measure(self, groups: Sequence[Group]) -> Signals:
        """The metric is the mean of log(sampling policy / reference), absent without a sampled
        token."""
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
