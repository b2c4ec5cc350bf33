"""Penalties of an algorithm's reward shaping."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from turnwise.algorithms.registry import Algorithm
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
