"""Estimates of the Kullback-Leibler divergence from log-probabilities of sampled tokens.

All take log-probabilities of one shape, of tokens that `sampler` sampled, and estimate
KL(sampler || other) token by token. x = sampler - other.

x itself (k1) is not among them: the gradient of its mean over what the sampler sampled is 0, so as
a loss it holds nothing back. Among the rewards it does (`kl_reward_coefficient`).
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from turnwise.algorithms.parts import part

if TYPE_CHECKING:
    from torch import Tensor

MAX_LOG_RATIO = 20.0
"""Log-ratios are clamped to [-20, 20] before exp, here and in the losses."""

MAX_KL_ERROR = 0.2
"""Largest miss of the KL target that one step answers to, as a share of the target."""


Divergence = Callable[["Tensor", "Tensor", "Tensor"], "Tensor"]
"""(policy, reference, policy that sampled): log-probabilities [n] -> estimates [n]."""


def _of_two(function: Callable[["Tensor", "Tensor"], "Tensor"]) -> Divergence:
    """Takes the sample for the policy's own."""

    def divergence(sampler: "Tensor", other: "Tensor", behaviour: "Tensor") -> "Tensor":
        return function(sampler, other)

    return divergence


@part("divergence", "k2", "half the squared log-ratio: the right gradient", of=_of_two)
def k2(sampler: "Tensor", other: "Tensor") -> "Tensor":
    """x^2 / 2: biased as a value, but its gradient is that of the divergence."""
    return (sampler - other) ** 2 / 2


@part("divergence", "k3", "never negative, the right value (Schulman 2020)", of=_of_two)
def k3(sampler: "Tensor", other: "Tensor") -> "Tensor":
    """e^-x + x - 1 >= 0: unbiased as a value, not as a gradient (arXiv 2402.03300, 4)."""
    difference = (sampler - other).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    return (-difference).exp() + difference - 1


@part("divergence", "k3_plus", "the value of k3 with the gradient of k2", of=_of_two)
def k3_plus(sampler: "Tensor", other: "Tensor") -> "Tensor":
    """The value of k3 with the gradient of k2: right in both."""
    gradient = k2(sampler, other)
    return k3(sampler, other).detach() + gradient - gradient.detach()


@part("divergence", "unbiased", "k3 times the importance ratio: right in both (arXiv 2512.02556)")
def unbiased(policy: "Tensor", other: "Tensor", behaviour: "Tensor") -> "Tensor":
    """r k3, r = e^(policy - behaviour) with its gradient, for tokens that `behaviour` sampled:
    right in value and gradient, however far the policy has moved (arXiv 2512.02556, 3.1)."""
    ratio = (policy - behaviour).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
    return ratio * k3(policy, other)


def adapted_coefficient(
    coefficient: float, measured: float, target: float, horizon: float, trajectories: int
) -> float:
    """c (1 + clip(KL / target - 1, -0.2, 0.2) n / horizon), after a step of n trajectories;
    positive while n < 5 horizon. Source: Ziegler et al., arXiv 1909.08593, section 2.2."""
    error = min(max(measured / target - 1, -MAX_KL_ERROR), MAX_KL_ERROR)
    return coefficient * (1 + error * trajectories / horizon)


def sequence_sums(numbers: "Tensor", sequence: "Tensor") -> "Tensor":
    """[n]: the sum over a token's sequence, on each token; `sequence` is int64[n], from 0."""
    size = int(sequence.max()) + 1 if len(sequence) else 0
    return numbers.new_zeros(size).index_add(0, sequence, numbers)[sequence]


def sequence_means(numbers: "Tensor", sequence: "Tensor") -> "Tensor":
    return sequence_sums(numbers, sequence) / sequence_sums(
        numbers.new_ones(numbers.shape), sequence
    )
