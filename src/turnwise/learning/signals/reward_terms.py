"""Terms of the reward beside the environment's: an algorithm's penalty, and the KL term."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from turnwise.algorithms.algorithm import Algorithm
from turnwise.learning.signals.base import SignalArrays, Signals, by_trajectory, graded
from turnwise.tokens import Source
from turnwise.types import Group, Trajectory

SAMPLED = (Source.MODEL, Source.INHERITED)


@dataclass(frozen=True)
class Penalty:
    """The penalty of every graded trajectory.

    A length is the number of tokens that the policy sampled in one context, at most, those before a
    branch included; the budget is `rollout.max_tokens`, which prompt and observations fill as well.
    So an agent is not punished for results of tools.
    """

    algorithm: Algorithm
    max_tokens: int

    def measure(self, groups: Sequence[Group]) -> Signals:
        """The metric is the mean penalty, absent where the algorithm shapes no reward."""
        members = graded(groups)
        lengths = np.array([_length(member) for member in members], np.int64)
        penalties = self.algorithm.call("reward_shaping", lengths, self.max_tokens).tolist()
        shaped = self.algorithm.reward_shaping != "none" and members
        return Signals(
            by_trajectory(members, [SignalArrays(penalty=penalty) for penalty in penalties]),
            {"reward/penalty": fmean(penalties)} if shaped else {},
        )


def _length(member: Trajectory) -> int:
    source = member.tokens.source
    return max(int(np.isin(source[span], SAMPLED).sum()) for span in member.tokens.spans)


METRIC = "policy/kl_reference"

Scores = Callable[[Sequence[Trajectory]], list[NDArray[np.float64]]]
"""Trajectories -> log-probabilities of their sampled tokens, as `sampled_logprobs` gives them."""


@dataclass(frozen=True)
class KLReward:
    """`token_rewards`: -coefficient log(sampling policy / reference) of each sampled token, 0 where
    that is not finite. Source: arXiv 1909.08593, equation 2; REINFORCE++ (arXiv 2501.03262)."""

    reference: Scores
    """Scores under the reference model."""
    coefficient: float
    """The coefficient of this step."""

    def measure(self, groups: Sequence[Group]) -> Signals:
        """The metric: the mean of log(sampling policy / reference), if anything was sampled."""
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
