"""The policy loss, per trained token: objective, correction, KL and entropy terms, and metrics.

Everything is flat: one row per trained token, and nothing for the others, so that no padding and no
observation can enter a term, a metric or a denominator.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from turnwise.algorithms.algorithm import Algorithm
from turnwise.algorithms.corrections import Staleness
from turnwise.algorithms.kl import k3, sequence_means
from turnwise.algorithms.objectives import Inputs
from turnwise.algorithms.parts import BYPASS, part

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class TrainedTokens:
    """The n trained tokens of a micro-batch, all tensors [n]."""

    logprob: "Tensor"
    """float32 with gradient: under the current policy."""
    behaviour_logprob: "Tensor"
    """float32: under the policy that sampled them."""
    old_logprob: "Tensor"
    """float32: under the policy that ratios are to, which with `bypass` is the sampling one."""
    advantage: "Tensor"
    weight: "Tensor"
    """Weight from `aggregation`: sums over the whole optimizer batch are means over it."""
    sequence: "Tensor"
    """int64: which sequence of the micro-batch, from 0."""
    entropy: "Tensor"
    """float32, with gradient if it has a coefficient."""
    reference_logprob: "Tensor | None" = None
    """float32: under the reference model; needed when `kl_coefficient` is not 0."""
    loss_scale: "Tensor | None" = None
    """Factor on the objective; needed, as `kl_penalty`, with a token filter."""
    kl_penalty: "Tensor | None" = None
    """Weight of the divergence of the policy from the old one."""


@dataclass(frozen=True)
class TokenLosses:
    """The loss, token by token, with sums over the n tokens, to be divided by all tokens."""

    losses: "Tensor"
    """float32[n], weighted: their sum over the optimizer batch is the loss."""
    weights: "Tensor"
    """float32[n], without gradient: aggregation weight times filter's scale times correction's."""
    sums: dict[str, float]
    maxima: dict[str, float]
    minima: dict[str, float]


@part("ratio_level", "token", "one importance ratio per token (arXiv 1707.06347)")
def token_log_ratio(tokens: TrainedTokens) -> "Tensor":
    """log(policy / old policy) of each token (PPO, arXiv 1707.06347)."""
    return tokens.logprob - tokens.old_logprob


@part(
    "ratio_level", "sequence", "the geometric mean of a sequence's (GSPO-token, arXiv 2507.18071)"
)
def sequence_log_ratio(tokens: TrainedTokens) -> "Tensor":
    """The mean of a sequence's log-ratios, on each of its trained tokens. Value s_i, gradient that
    of each token's own log-probability: GSPO-token (arXiv 2507.18071, equation 14), which is GSPO
    where a sequence's tokens share one advantage."""
    means = sequence_means(token_log_ratio(tokens).detach(), tokens.sequence)
    return means + (tokens.logprob - tokens.logprob.detach())


@part("extension", "none", "the terms of the loss alone")
def none() -> None:
    """Add nothing."""


def policy_loss(tokens: TrainedTokens, algorithm: Algorithm) -> TokenLosses:
    """weight (correction (loss_scale objective + kl_penalty KL(old || policy)) + kl_coefficient
    divergence - entropy_coefficient H) per token.

    The KL term is GRPO's (arXiv 2402.03300), equation 3. ValueError without the numbers it needs.
    """
    import torch

    inputs = Inputs(
        log_ratio=algorithm.call("ratio_level", tokens),
        advantage=tokens.advantage,
        logprob=tokens.logprob,
        old_logprob=tokens.old_logprob,
        sequence=tokens.sequence,
    )
    losses, stopped = algorithm.call("objective", inputs)
    weights = tokens.weight
    drift = k3(tokens.behaviour_logprob, tokens.logprob.detach())
    sums = {
        "policy/clip_fraction": stopped.sum(),
        "policy/approx_kl": drift.sum(),
        "policy/entropy": tokens.entropy.detach().sum(),
    }
    if algorithm.token_filter != "none":
        if tokens.loss_scale is None or tokens.kl_penalty is None:
            raise ValueError(f"token_filter is {algorithm.token_filter}, but nothing was filtered")
        losses = tokens.loss_scale * losses + tokens.kl_penalty * k3(
            tokens.old_logprob, tokens.logprob
        )
        weights = weights * tokens.loss_scale
        treated = (tokens.loss_scale != 1) | (tokens.kl_penalty != 0)
        sums["policy/filtered_fraction"] = treated.sum()
    if algorithm.correction != BYPASS:
        correction = correction_weights(tokens, algorithm)
        losses = losses * correction
        weights = weights * correction
        sums["correction/weight"] = correction.sum()
        sums["correction/rejected_fraction"] = (correction == 0).sum()
    if algorithm.kl_coefficient:
        if tokens.reference_logprob is None:
            raise ValueError("kl_coefficient is not 0, but there are no reference log-probs")
        divergence = algorithm.call(
            "divergence", tokens.logprob, tokens.reference_logprob, tokens.behaviour_logprob
        )
        losses = losses + algorithm.kl_coefficient * divergence
        sums["policy/kl_reference"] = divergence.detach().sum()
    if algorithm.entropy_coefficient:
        losses = losses - algorithm.entropy_coefficient * tokens.entropy
    ratio = inputs.ratio.detach()
    ends = (ratio.max(), ratio.min()) if len(ratio) else ()
    # One copy for all of them: a GPU is waited for each time that a number is asked for.
    numbers = torch.stack([one.double() for one in (*sums.values(), *ends)]).tolist()
    found, extremes = dict(zip(sums, numbers, strict=False)), numbers[len(sums) :]
    maxima = dict(zip(["policy/ratio_max"], extremes[:1], strict=False))
    minima = dict(zip(["policy/ratio_min"], extremes[1:], strict=False))
    return TokenLosses(losses * tokens.weight, weights, found, maxima, minima)


def correction_weights(tokens: TrainedTokens, algorithm: Algorithm) -> "Tensor":
    """float32[n], without gradient: what the algorithm's correction makes of each token."""
    staleness = Staleness(
        log_rho=tokens.old_logprob - tokens.behaviour_logprob,
        sequence=tokens.sequence,
        advantage=tokens.advantage,
        log_ratio=(tokens.logprob - tokens.old_logprob).detach(),
    )
    weights: Tensor = algorithm.call("correction", staleness)
    return weights
