"""Divergences of two distributions over the whole vocabulary. Pure torch."""

import math

import torch
from torch import Tensor


def jensen_shannon(first: Tensor, second: Tensor, alpha: float) -> Tensor:
    """(1 - alpha) KL(first || m) + alpha KL(second || m), m = (1 - alpha) first + alpha second.

    Generalised Jensen-Shannon divergence of GKD (arXiv 2306.13649), equation 1, in nats. Takes
    log-probabilities [n, V], each row summing to 1 and none -inf, and gives [n]; alpha in (0, 1).
    """
    parts = torch.stack([first + math.log(1 - alpha), second + math.log(alpha)])
    mixture = torch.logsumexp(parts, dim=0)
    of_first = (first.exp() * (first - mixture)).sum(dim=-1)
    of_second = (second.exp() * (second - mixture)).sum(dim=-1)
    return (1 - alpha) * of_first + alpha * of_second
