"""Weights for samples of another policy than the one being improved: off-policy corrections.

The engine's policy mu sampled the tokens; the learner's policy was pi_old when the update began.
They differ where the engine computes otherwise (precision, kernels) or sampled with older weights.
rho = pi_old / mu. A correction gives each trained token a weight without gradient, by which its
loss is multiplied; a rejected token has weight 0 and stays in the denominators.

`bypass` is the choice of no weight: the ratio of the objective is then pi / mu, which is the whole
correction by itself. With any other it is pi / pi_old. So nothing is corrected twice.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from turnwise.algorithms.kl import MAX_LOG_RATIO, sequence_means, sequence_sums
from turnwise.algorithms.parts import BYPASS, part
from turnwise.ranges import NonNegative

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Staleness:
    """The n trained tokens of a micro-batch as a correction sees them, all tensors [n]."""

    log_rho: "Tensor"
    """log(pi_old / mu)."""
    sequence: "Tensor"
    """int64: which sequence of the micro-batch, from 0."""
    advantage: "Tensor"
    log_ratio: "Tensor"
    """log(pi / pi_old), without gradient."""

    def sums(self, numbers: "Tensor") -> "Tensor":
        return sequence_sums(numbers, self.sequence)

    def means(self, numbers: "Tensor") -> "Tensor":
        return sequence_means(numbers, self.sequence)


@part("correction", "truncated", "truncated weight per token (arXiv 2505.24298)")
def truncated(staleness: Staleness, cap: NonNegative = 2.0) -> "Tensor":
    """min(rho, cap) for each token: token-level TIS, as in AReaL (arXiv 2505.24298)."""
    return _exp(staleness.log_rho).clamp(max=cap)


@part("correction", "sequence_truncated", "truncated weight per sequence")
def sequence_truncated(staleness: Staleness, cap: NonNegative = 2.0) -> "Tensor":
    """min(product of a sequence's rho, cap): unbiased below the cap, of high variance if long."""
    return _exp(staleness.sums(staleness.log_rho)).clamp(max=cap)


@part("correction", "masked", "weight inside an interval, else 0 (MIS; IcePop with rho_high = 5)")
def masked(
    staleness: Staleness, rho_low: NonNegative = 0.5, rho_high: NonNegative = 2.0
) -> "Tensor":
    """rho where low <= rho <= high, else 0 (MIS with 0.5 and 2; IcePop with 0.5 and 5)."""
    rho = _exp(staleness.log_rho)
    # NaN is neither below nor above.
    return rho.masked_fill((rho < rho_low) | (rho > rho_high) | rho.isnan(), 0.0)


@part("correction", "geometric", "rejects sequences by their geometric mean")
def geometric(
    staleness: Staleness, rho_low: NonNegative = 0.99, rho_high: NonNegative = 1.01
) -> "Tensor":
    """1 for sequences whose geometric mean of rho is in [low, high], else 0, at any length."""
    mean = _exp(staleness.means(staleness.log_rho))
    return ((mean >= rho_low) & (mean <= rho_high)).to(mean.dtype)


@part("correction", "one_sided", "rejects bad sequences that the policy has left")
def one_sided(staleness: Staleness, drift: NonNegative = 0.5) -> "Tensor":
    """0 for sequences of negative mean advantage with a mean log(mu / pi) above drift, else 1 (OPSM
    of DeepSeek-V3.2)."""
    away = -staleness.means(staleness.log_rho + staleness.log_ratio)
    rejected = (staleness.means(staleness.advantage) < 0) & (away > drift)
    return (~rejected).to(away.dtype)


@part("correction", "none", "the sampling policy is taken for the learner's")
def none(staleness: Staleness) -> "Tensor":
    """1: the objective's ratio is pi / pi_old, and mu is taken for pi_old."""
    return staleness.log_rho.new_ones(staleness.log_rho.shape)


@part("correction", BYPASS, "the objective's ratio is taken to the sampling policy itself")
def bypass(staleness: Staleness) -> "Tensor":
    """1: the objective's ratio is pi / mu, which corrects by itself."""
    return none(staleness)


def _exp(log_ratio: "Tensor") -> "Tensor":
    return log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
