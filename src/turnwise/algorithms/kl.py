"""Estimates of the Kullback-Leibler divergence from log-probabilities of sampled tokens."""

import torch

MAX_LOG_RATIO = 20.0
"""Log-ratios are clamped to [-20, 20] before exp, here and in the losses."""


def k3(sampler: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """KL(sampler || other) per token, from tokens that `sampler` sampled: e^-x + x - 1 >= 0.

    x = sampler - other, both log-probabilities of one shape. Unbiased as a value, not as a
    gradient. Source: Schulman 2020, "Approximating KL divergence"; GRPO, arXiv 2402.03300 (4).
    """
    difference = (sampler - other).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    return torch.exp(-difference) + difference - 1
