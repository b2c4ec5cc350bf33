"""How much of an update's gradient is noise: how far the gradients of its groups are apart.

Not here: how noisy estimators are where the exact gradient is known
(`benchmarks/gradient_variance.py`).
"""

from collections.abc import Sequence

from torch import Tensor


class GradientNoise:
    """Watches gradients add up, group after group. Holds one more copy of them.

    An update's gradient is the sum of those of n groups, whose tasks and trajectories are drawn
    independently. With S = sum_i |g_i|^2 and g = sum_i g_i, the trace of the covariance of g is
    estimated without bias by (S - |g|^2 / n) n / (n - 1), and the square of its expectation by
    |g|^2 less that.
    """

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        self._parameters = parameters
        self._before: list[Tensor] | None = None
        self._squares = 0.0

    def add(self) -> None:
        """Count what was added to the gradients since the last call as one group's."""
        now = [
            parameter.grad.detach().float().clone()
            for parameter in self._parameters
            if parameter.grad is not None
        ]
        before = self._before or [tensor.new_zeros(()) for tensor in now]
        self._squares += _square([new - old for new, old in zip(now, before, strict=True)])
        self._before = now

    def metrics(self, groups: int) -> dict[str, float]:
        """The variance of the gradient, and the square of what is not noise in it; the latter may
        come out negative. Nothing for fewer than 2 groups.

        `groups` are those of the update: one that was never added had a gradient of 0.
        """
        if groups < 2 or self._before is None:
            return {}
        total = _square(self._before)
        variance = (self._squares - total / groups) * groups / (groups - 1)
        return {"policy/gradient_variance": variance, "policy/gradient_signal": total - variance}


def _square(tensors: Sequence[Tensor]) -> float:
    return float(sum(float(tensor.square().sum()) for tensor in tensors))
