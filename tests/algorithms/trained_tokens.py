"""Trained tokens for losses: what a test says nothing of is plain."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from turnwise.algorithms.losses import TrainedTokens


def trained_tokens(
    logprob: Tensor, old_logprob: Tensor | Sequence[float], **others: Any
) -> TrainedTokens:
    """Each is a sequence of its own of weight 1, sampled by the old policy; an advantage of 0."""
    count, old = len(logprob), torch.as_tensor(old_logprob, dtype=logprob.dtype)
    plain = {
        "behaviour_logprob": old,
        "advantage": torch.zeros(count),
        "weight": torch.ones(count),
        "sequence": torch.arange(count),
        "entropy": torch.zeros(count),
    }
    return TrainedTokens(logprob=logprob, old_logprob=old, **(plain | others))
