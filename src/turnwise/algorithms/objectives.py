"""From importance ratio and advantage to the loss of each trained token.

Flat float32[n] tensors, one row per trained token: no padding and no observation is there. The
log-ratio x = log(policy / old policy) has a gradient. Weights, KL and entropy terms are added
in `losses.py`. Ratios are exp of x clamped to [-20, 20].
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from turnwise.algorithms.kl import MAX_LOG_RATIO, sequence_means, sequence_sums


@dataclass(frozen=True)
class Inputs:
    """What an objective sees of the n trained tokens of a micro-batch, all tensors [n]."""

    log_ratio: Tensor
    """At the ratio level of the algorithm, with gradient."""
    advantage: Tensor
    logprob: Tensor
    """Under the current policy, with gradient."""
    old_logprob: Tensor
    """Under the policy that the log-ratio is to."""
    sequence: Tensor
    """int64: which sequence of the micro-batch, from 0."""

    @property
    def ratio(self) -> Tensor:
        """exp(log_ratio), clamped."""
        return torch.exp(self.log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO))


Objective = Callable[..., tuple[Tensor, Tensor]]
"""(inputs, **numbers) -> losses [n], and bool[n]: where the objective took the gradient away."""


def clip(
    inputs: Inputs, clip_low: float, clip_high: float, dual_clip: float
) -> tuple[Tensor, Tensor]:
    """max(-r A, -clip(r, 1 - low, 1 + high) A), and at most -dual_clip A where A < 0.

    Source: PPO (arXiv 1707.06347), equation 7; the second bound arXiv 1912.09729, where it is 3.
    """
    ratio, advantage = inputs.ratio, inputs.advantage
    plain = -ratio * advantage
    clipped = -ratio.clamp(1 - clip_low, 1 + clip_high) * advantage
    losses = torch.maximum(plain, clipped)
    bound = -dual_clip * advantage
    beyond = (advantage < 0) & (losses > bound)
    return torch.where(beyond, bound, losses), (clipped > plain) | beyond


def policy_gradient(inputs: Inputs) -> tuple[Tensor, Tensor]:
    """-r A: its gradient is that of -A log pi, corrected for the age of the sample."""
    return -inputs.ratio * inputs.advantage, _nowhere(inputs)


def cispo(inputs: Inputs, clip_low: float, clip_high: float) -> tuple[Tensor, Tensor]:
    """-sg(clip(r, 1 - low, 1 + high)) A log pi: a bounded weight, and no token without gradient.

    Source: MiniMax-M1 (arXiv 2506.13585), equation 4.
    """
    weight = inputs.ratio.detach().clamp(1 - clip_low, 1 + clip_high)
    losses = -weight * inputs.advantage * inputs.logprob
    return losses, _nowhere(inputs)


def sapo(inputs: Inputs, gate_positive: float, gate_negative: float) -> tuple[Tensor, Tensor]:
    """-f(r) A with f(r) = 4/g sigmoid(g (r - 1)), g by the advantage's sign: a soft trust region.

    Source: SAPO (arXiv 2511.20347).
    """
    gate = torch.full_like(inputs.advantage, gate_negative)
    gate = gate.masked_fill(inputs.advantage > 0, gate_positive)
    return -4 / gate * torch.sigmoid(gate * (inputs.ratio - 1)) * inputs.advantage, _nowhere(inputs)


def dppo_tv(inputs: Inputs, clip_low: float, clip_high: float) -> tuple[Tensor, Tensor]:
    """-r A, without tokens whose probability has moved too far in the advantage's direction: by
    more than clip_high up, or clip_low down.

    Source: DPPO, binary total variation (arXiv 2602.04879).
    """
    moved = (inputs.logprob.exp() - inputs.old_logprob.exp()).detach()
    gone = torch.where(inputs.advantage > 0, moved > clip_high, -moved > clip_low)
    return _without(inputs, gone)


def dppo_kl(inputs: Inputs, divergence: float) -> tuple[Tensor, Tensor]:
    """The same, by the divergence of the two-way choice "this token or another one".

    Source: DPPO, binary KL (arXiv 2602.04879).
    """
    policy, old = inputs.logprob.detach().exp(), inputs.old_logprob.exp()
    further = torch.where(inputs.advantage > 0, policy > old, policy < old)
    return _without(inputs, further & (_binary_kl(old, policy) > divergence))


def sequence_squared(inputs: Inputs, temperature: float) -> tuple[Tensor, Tensor]:
    """-A x + temperature S x / 2 for the log-ratio x of each token, S their sum over its sequence.

    The sum over a sequence is -A S + temperature S^2 / 2, which is (A - temperature S)^2 / (2
    temperature) less what has no gradient: the square is that of the whole sequence's log-ratio. A
    sequence is one context, and its tokens have one weight, as every aggregation gives it. Source:
    Kimi K2 (arXiv 2507.20534), after Kimi k1.5 (arXiv 2501.12599), equation 3.
    """
    x = inputs.log_ratio
    sums = sequence_sums(x, inputs.sequence)
    return -inputs.advantage * x + temperature * sums * x / 2, _nowhere(inputs)


def squared(
    inputs: Inputs, temperature: float, window_low: float, window_high: float
) -> tuple[Tensor, Tensor]:
    """-A x + temperature x^2 / 2 for the log-ratio x, and nothing outside of [-low, high].

    That is (A - temperature x)^2 / (2 temperature) less what has no gradient; at x = 0 the gradient
    is that of -A log pi. Source: Kimi K2.5 (arXiv 2602.02276): the square is each token's, and the
    window holds whatever the advantage's sign.
    """
    x = inputs.log_ratio
    gone = (x.detach() < -window_low) | (x.detach() > window_high)
    losses = -inputs.advantage * x + temperature * x**2 / 2
    return torch.where(gone, torch.zeros_like(losses), losses), gone


def gmpo(inputs: Inputs, window_low: float, window_high: float) -> tuple[Tensor, Tensor]:
    """-s A for the geometric mean s of the sequence's ratios, each kept from going further in the
    advantage's direction than log-ratio high up, or low down.

    s has the gradient of each token's own ratio, which is the paper's where the tokens of a
    sequence share one advantage, and leaves each its own where they do not (compare GSPO-token).
    Source: GMPO (arXiv 2507.20673), clipped per token, with the range (e^-0.4, e^0.4).
    """
    x = inputs.log_ratio
    up, down = inputs.advantage > 0, inputs.advantage < 0
    bounded = torch.where(up, x.clamp(max=window_high), x)
    bounded = torch.where(down, x.clamp(min=-window_low), bounded)
    means = sequence_means(bounded.detach(), inputs.sequence) + (bounded - bounded.detach())
    ratio = torch.exp(means.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO))
    stopped = (up & (x.detach() > window_high)) | (down & (x.detach() < -window_low))
    return -ratio * inputs.advantage, stopped


OBJECTIVES: dict[str, Objective] = {
    "clip": clip,
    "policy_gradient": policy_gradient,
    "cispo": cispo,
    "sapo": sapo,
    "dppo_tv": dppo_tv,
    "dppo_kl": dppo_kl,
    "sequence_squared": sequence_squared,
    "squared": squared,
    "gmpo": gmpo,
}


def _without(inputs: Inputs, gone: Tensor) -> tuple[Tensor, Tensor]:
    losses = -inputs.ratio * inputs.advantage
    return torch.where(gone, torch.zeros_like(losses), losses), gone


def _nowhere(inputs: Inputs) -> Tensor:
    return torch.zeros_like(inputs.advantage, dtype=torch.bool)


def _binary_kl(first: Tensor, second: Tensor) -> Tensor:
    tiny = torch.finfo(first.dtype).tiny
    yes = first * (first.clamp(min=tiny) / second.clamp(min=tiny)).log()
    rest_first, rest_second = 1 - first, 1 - second
    no = rest_first * (rest_first.clamp(min=tiny) / rest_second.clamp(min=tiny)).log()
    return yes + no
