"""The loss of each trained token, from importance ratio and advantage.

Flat float32[n] tensors, one row per trained token: no padding and no observation is there. Weights,
KL and entropy terms are added in `losses.py`. Ratios are exp of x clamped to [-20, 20].

Next: `learning/batch.py`.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from turnwise.algorithms.kl import MAX_LOG_RATIO, sequence_means, sequence_sums
from turnwise.algorithms.parts import Trait, part
from turnwise.ranges import NonNegative, Positive, Range

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Inputs:
    """The n trained tokens of a micro-batch as an objective sees them, all tensors [n]."""

    log_ratio: "Tensor"
    """At the ratio level of the algorithm, with gradient."""
    advantage: "Tensor"
    logprob: "Tensor"
    """Log-probability under the current policy, with gradient."""
    old_logprob: "Tensor"
    """Log-probability under the policy that the log-ratio is to."""
    sequence: "Tensor"
    """int64: which sequence of the micro-batch, from 0."""

    @property
    def ratio(self) -> "Tensor":
        return self.log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()


USUAL = (Trait.BY_ADVANTAGE, Trait.PLAIN_AT_ONE)


@part(
    "objective",
    "clip",
    "clipped ratio, and a second bound where advantages are negative (arXiv 1707.06347)",
    traits=USUAL,
)
def clip(
    inputs: Inputs,
    clip_low: NonNegative = 0.2,
    clip_high: NonNegative = 0.2,
    dual_clip: Annotated[float, Range(1)] = math.inf,
) -> "tuple[Tensor, Tensor]":
    """max(-r A, -clip(r, 1 - low, 1 + high) A), and at most -dual_clip A where A < 0. Source: PPO
    (arXiv 1707.06347), equation 7; the second bound arXiv 1912.09729, where it is 3."""
    ratio, advantage = inputs.ratio, inputs.advantage
    plain = -ratio * advantage
    clipped = -ratio.clamp(1 - clip_low, 1 + clip_high) * advantage
    losses = plain.maximum(clipped)
    bound = -dual_clip * advantage  # inf * 0 is NaN: `beyond` leaves it out
    beyond = (advantage < 0) & (losses > bound)
    return bound.where(beyond, losses), (clipped > plain) | beyond


@part(
    "objective", "policy_gradient", "ratio times advantage, unbounded (Williams 1992)", traits=USUAL
)
def policy_gradient(inputs: Inputs) -> "tuple[Tensor, Tensor]":
    """-r A: its gradient is that of -A log pi, corrected for the age of the sample."""
    return -inputs.ratio * inputs.advantage, _nowhere(inputs)


@part(
    "objective", "cispo", "bounded weight of the log-probability (arXiv 2506.13585)", traits=USUAL
)
def cispo(
    inputs: Inputs, clip_low: NonNegative = 1.0, clip_high: NonNegative = 4.0
) -> "tuple[Tensor, Tensor]":
    """-sg(clip(r, 1 - low, 1 + high)) A log pi: a bounded weight (arXiv 2506.13585, 4)."""
    weight = inputs.ratio.detach().clamp(1 - clip_low, 1 + clip_high)
    losses = -weight * inputs.advantage * inputs.logprob
    return losses, _nowhere(inputs)


@part("objective", "sapo", "soft gate around ratio 1 (arXiv 2511.20347)", traits=USUAL)
def sapo(
    inputs: Inputs, gate_positive: Positive = 1.0, gate_negative: Positive = 1.05
) -> "tuple[Tensor, Tensor]":
    """-f(r) A, f(r) = 4/g sigmoid(g (r - 1)), g by the advantage's sign (arXiv 2511.20347)."""
    gate = inputs.advantage.new_full(inputs.advantage.shape, gate_negative)
    gate = gate.masked_fill(inputs.advantage > 0, gate_positive)
    return -4 / gate * (gate * (inputs.ratio - 1)).sigmoid() * inputs.advantage, _nowhere(inputs)


@part("objective", "dppo_tv", "trust region in probability (arXiv 2602.04879)", traits=USUAL)
def dppo_tv(
    inputs: Inputs, clip_low: NonNegative = 0.2, clip_high: NonNegative = 0.2
) -> "tuple[Tensor, Tensor]":
    """-r A, without tokens whose probability moved too far in the advantage's direction: by more
    than clip_high up, or clip_low down (DPPO, binary total variation, arXiv 2602.04879)."""
    moved = (inputs.logprob.exp() - inputs.old_logprob.exp()).detach()
    gone = (moved > clip_high).where(inputs.advantage > 0, -moved > clip_low)
    return without(inputs, gone)


@part("objective", "dppo_kl", "trust region in binary divergence (arXiv 2602.04879)", traits=USUAL)
def dppo_kl(inputs: Inputs, trust_region: NonNegative = 0.05) -> "tuple[Tensor, Tensor]":
    """-r A, without tokens that moved too far in the advantage's direction, by the divergence of
    "this token or another one" (DPPO, binary KL, arXiv 2602.04879)."""
    policy, old = inputs.logprob.detach().exp(), inputs.old_logprob.exp()
    further = (policy > old).where(inputs.advantage > 0, policy < old)
    return without(inputs, further & (binary_kl(old, policy) > trust_region))


@part(
    "objective",
    "sequence_squared",
    "squared log-ratio of the whole sequence (arXiv 2507.20534)",
    traits=[Trait.PLAIN_AT_ONE],
)
def sequence_squared(inputs: Inputs, temperature: NonNegative = 0.1) -> "tuple[Tensor, Tensor]":
    """-A x + temperature S x / 2 for the log-ratio x of each token, S their sum over its sequence.
    The sum over a sequence is (A - temperature S)^2 / (2 temperature) less what has no gradient.
    Source: Kimi K2 (arXiv 2507.20534), after Kimi k1.5 (arXiv 2501.12599), equation 3."""
    x = inputs.log_ratio
    sums = sequence_sums(x, inputs.sequence)
    return -inputs.advantage * x + temperature * sums * x / 2, _nowhere(inputs)


@part(
    "objective",
    "squared",
    "squared log-ratio of each token, inside a window (arXiv 2602.02276)",
    traits=[Trait.PLAIN_AT_ONE],
)
def squared(
    inputs: Inputs,
    temperature: NonNegative = 0.1,
    window_low: NonNegative = math.inf,
    window_high: NonNegative = math.inf,
) -> "tuple[Tensor, Tensor]":
    """-A x + temperature x^2 / 2 for the log-ratio x, and nothing outside of [-low, high].

    That is (A - temperature x)^2 / (2 temperature) less what has no gradient; at x = 0 the gradient
    is that of -A log pi. Source: Kimi K2.5 (arXiv 2602.02276): the square is each token's, and the
    window holds whatever the advantage's sign.
    """
    x = inputs.log_ratio
    gone = (x.detach() < -window_low) | (x.detach() > window_high)
    losses = -inputs.advantage * x + temperature * x**2 / 2
    return losses.masked_fill(gone, 0.0), gone


@part(
    "objective",
    "gmpo",
    "geometric mean of a sequence's clipped ratios (arXiv 2507.20673)",
    traits=USUAL,
)
def gmpo(
    inputs: Inputs, window_low: NonNegative = 0.4, window_high: NonNegative = 0.4
) -> "tuple[Tensor, Tensor]":
    """-s A for the geometric mean s of the sequence's ratios, each kept from going further in the
    advantage's direction than log-ratio high up, or low down.

    s has the gradient of each token's own ratio, which is the paper's where a sequence's tokens
    share one advantage. Source: GMPO (arXiv 2507.20673), clipped per token, with the range (e^-0.4,
    e^0.4).
    """
    x = inputs.log_ratio
    up, down = inputs.advantage > 0, inputs.advantage < 0
    bounded = x.clamp(max=window_high).where(up, x)
    bounded = x.clamp(min=-window_low).where(down, bounded)
    # In value the mean of the sequence, in gradient each token's own.
    means = sequence_means(bounded.detach(), inputs.sequence) + (bounded - bounded.detach())
    ratio = means.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
    stopped = (up & (x.detach() > window_high)) | (down & (x.detach() < -window_low))
    return -ratio * inputs.advantage, stopped


def without(inputs: Inputs, gone: "Tensor") -> "tuple[Tensor, Tensor]":
    """-r A, and 0 without a gradient for the tokens that are gone, bool[n]."""
    losses = -inputs.ratio * inputs.advantage
    return losses.masked_fill(gone, 0.0), gone


def _nowhere(inputs: Inputs) -> "Tensor":
    return inputs.advantage.new_zeros(inputs.advantage.shape).bool()


def binary_kl(first: "Tensor", second: "Tensor") -> "Tensor":
    """KL(first || second) of "this token or another one", from two probabilities of it, [n]."""
    import torch

    tiny = torch.finfo(first.dtype).tiny  # 0 log 0 is 0
    yes = first * (first.clamp(min=tiny) / second.clamp(min=tiny)).log()
    rest_first, rest_second = 1 - first, 1 - second
    no = rest_first * (rest_first.clamp(min=tiny) / rest_second.clamp(min=tiny)).log()
    return yes + no
