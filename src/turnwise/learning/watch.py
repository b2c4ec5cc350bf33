"""Measurements of an update beside its gradient, taken from the passes that it makes anyway.

Not here: the sums that become metrics (`metric_sums.py`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from turnwise.learning.batch import Example
from turnwise.learning.gradient_noise import GradientNoise
from turnwise.types import Group, TrajectoryId

Logprobs = Mapping[TrajectoryId, NDArray[np.float32]]
"""float32[n] for each trajectory of n tokens: log-probabilities of its trained tokens, else NaN."""


@dataclass(frozen=True)
class Watch:
    """The measurements that are asked of one update."""

    gap: bool
    """Whether to measure the distance to the engine's log-probabilities: before any update of the
    step, when the weights are still those that sampled."""
    logprobs: Logprobs | None
    """Filled in the first pass over a step's trajectories; None later."""
    noise: GradientNoise | None

    def see(self, members: Sequence[Example], logprobs: Tensor) -> None:
        """Keep the policy's log-probabilities, float32[N], of the members' trained tokens."""
        if self.logprobs is None:
            return
        counts = [int(member.trained.sum()) for member in members]
        for member, own in zip(members, torch.split(logprobs.cpu(), counts), strict=True):
            assert member.trajectory is not None  # made by `policy_examples`
            places = member.start + np.flatnonzero(member.trained)
            self.logprobs[member.trajectory][places] = own.numpy()


def no_logprobs(groups: Sequence[Group], trained: frozenset[TrajectoryId]) -> Logprobs:
    """Log-probabilities of the trained trajectories, before anything is known of them."""
    return {
        member.id: np.full(len(member.tokens), np.nan, np.float32)
        for group in groups
        for member in group.graded
        if member.id in trained
    }


def together(parts: Sequence[Logprobs]) -> Logprobs:
    """Join what each rank knows of the same trajectories."""
    first, *others = parts
    for part in others:
        for name, row in part.items():
            np.copyto(first[name], row, where=~np.isnan(row))
    return first
