"""How much of an update's gradient is noise: how far the gradients of its groups are apart."""

from collections.abc import Sequence

import torch
from torch import Tensor

from turnwise.learning.optimizer import gradients_of
from turnwise.learning.ranks import ALONE, Ranks


class GradientNoise:
    """Watches gradients add up, group after group. Holds one more copy of them.

    An update's gradient is the sum of those of n groups, whose tasks and trajectories are drawn
    independently. With S = sum_i |g_i|^2 and g = sum_i g_i, the trace of the covariance of g is
    estimated without bias by (S - |g|^2 / n) n / (n - 1), and the square of its expectation by
    |g|^2 less that. Of several ranks each holds what it has of the gradients, and all make the same
    calls.
    """

    def __init__(self, parameters: Sequence[Tensor], ranks: Ranks = ALONE) -> None:
        self._parameters, self._ranks = parameters, ranks
        self._before: list[Tensor] | None = None
        self._squares = 0.0

    def add(self) -> None:
        """Count what was added to the gradients since the last call as one group's."""
        now = [one.detach().float().clone() for one in gradients_of(self._parameters)]
        before = self._before or [torch.zeros_like(tensor) for tensor in now]
        self._squares += self._square([new - old for new, old in zip(now, before, strict=True)])
        self._before = now

    def metrics(self, groups: int) -> dict[str, float]:
        """The variance of the gradient, and the square of what is signal in it, which may come out
        negative.

        Of an update of `groups` groups, where one never added had a gradient of 0; nothing for
        fewer than 2.
        """
        if groups < 2 or self._before is None:
            return {}
        total = self._square(self._before)
        variance = (self._squares - total / groups) * groups / (groups - 1)
        return {"policy/gradient_variance": variance, "policy/gradient_signal": total - variance}

    def _square(self, gradients: Sequence[Tensor]) -> float:
        """The squared length of a gradient of which ranks have parts; undivided ones are added up
        in place."""
        ranks = self._ranks
        ranks.sum_gradients(gradients)
        own = [ranks.local(one).square().sum() for one in gradients if ranks.counts(one)]
        return float(sum(ranks.gather(float(sum(map(float, own))))))
