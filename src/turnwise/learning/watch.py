"""Measurements of an update beside its gradient, taken from the passes that it makes anyway."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from turnwise.learning.batch import Example
from turnwise.learning.gradient_noise import GradientNoise
from turnwise.learning.token_numbers import NUMBERS, TokenNumbers


@dataclass(frozen=True)
class UpdateMetrics:
    gap: bool
    """Whether the weights are still those that sampled: then the gap to the engine is measured."""
    tokens: TokenNumbers | None
    """Filled in the first pass over a step's trajectories; None later."""
    noise: GradientNoise | None

    def see(self, members: Sequence[Example], *numbers: Tensor) -> None:
        """Keep the numbers of the members' trained tokens, float32[N] each, in the order of
        `NUMBERS`."""
        if self.tokens is None:
            return
        counts = [int(member.trained.sum()) for member in members]
        seen = torch.stack([each.detach() for each in numbers]).cpu()
        for member, own in zip(members, torch.split(seen, counts, dim=1), strict=True):
            assert member.trajectory is not None  # made by `policy_examples`
            places = member.start + np.flatnonzero(member.trained)
            for name, values in zip(NUMBERS.names or (), own.numpy(), strict=True):
                self.tokens[member.trajectory][name][places] = values
