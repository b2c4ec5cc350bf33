"""Sampling masks: the tokens that top_k, top_p and min_p left, as a mask of logits.

A token that was drawn among some of the vocabulary has its log-probability over these alone, log
pi(a) = z_a - log sum over the kept v of exp(z_v), under whatever weights it is asked: the policy
that sampled, the one that learns, and what both are compared with have one set of actions then
("Keep Sampling Mask", DeepSeek-V3.2, arXiv 2512.02556).
"""

import math

import numpy as np
import torch
from torch import Tensor

from turnwise.tokens import KeptTokens

LEFT_OUT = -1e9
"""The logit of a token that was left out: probability exactly 0, and finite products with that."""


def kept_at(kept: KeptTokens | None, places: Tensor) -> KeptTokens | None:
    return None if kept is None else kept[places.numpy()]


def without_left_out(logits: Tensor, kept: KeptTokens | None) -> Tensor:
    """Logits [n, vocabulary] with LEFT_OUT for tokens that were left out of a row."""
    if kept is None:
        return logits
    mask = _truncated(kept, logits)[:, None].repeat(1, logits.shape[1])
    mask[_entries(kept, logits)] = False
    return logits.masked_fill(mask, LEFT_OUT)


def highest_left(logits: Tensor, kept: KeptTokens | None) -> Tensor:
    """The highest of the logits [n, vocabulary] that are left in each row, [n, 1]."""
    highest = logits.amax(-1)
    if kept is not None:
        rows, ids = _entries(kept, logits)
        left = torch.full_like(highest, -math.inf)
        left.scatter_reduce_(0, rows, logits[rows, ids], "amax")
        highest = torch.where(_truncated(kept, logits), left, highest)
    return highest[:, None]


def leave_alone(masses: Tensor, kept: KeptTokens) -> None:
    """Set the masses [n, vocabulary] of tokens that were left out to 0, in place."""
    entries = _entries(kept, masses)
    left = masses[entries]
    masses.index_fill_(0, _truncated(kept, masses).nonzero()[:, 0], 0)
    masses[entries] = left


def _truncated(kept: KeptTokens, beside: Tensor) -> Tensor:
    """bool[n], the rows that some tokens were left out of."""
    return torch.from_numpy(kept.counts > 0).to(beside.device)


def _entries(kept: KeptTokens, beside: Tensor) -> tuple[Tensor, Tensor]:
    """int64[m] each, the row and the token of all that were kept."""
    rows = np.repeat(np.arange(len(kept)), kept.counts)
    ids = kept.ids.astype(np.int64)
    return torch.from_numpy(rows).to(beside.device), torch.from_numpy(ids).to(beside.device)
