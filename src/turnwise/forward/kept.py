"""Sampling masks: the tokens that top_k, top_p and min_p left, as a mask of logits.

A token that was drawn among some of the vocabulary has its log-probability over these alone, log
pi(a) = z_a - log sum over the kept v of exp(z_v), under whatever weights it is asked: the policy
that sampled, the one that learns, and what both are compared with have one set of actions then
("Keep Sampling Mask", DeepSeek-V3.2, arXiv 2512.02556). Not here: where the tokens are recorded
(`tokens.py`), and how they are chosen (`engines/truncation.py`).
"""

import numpy as np
import torch
from torch import Tensor

from turnwise.tokens import KeptTokens

LEFT_OUT = -1e9
"""The logit of a token that was left out: its probability is exactly 0, and its products with that
are numbers, as those of infinity are not."""


def without_left_out(logits: Tensor, kept: KeptTokens | None) -> Tensor:
    """Logits [n, vocabulary] in which those of the tokens that were left out of a row are
    LEFT_OUT; the logits themselves where nothing was left out of any."""
    return logits if kept is None else logits.masked_fill(left_out(kept, logits), LEFT_OUT)


def kept_at(kept: KeptTokens | None, places: Tensor) -> KeptTokens | None:
    """Take some places, int64[k], of a record, if there is one."""
    return None if kept is None else kept[places.numpy()]


def left_out(kept: KeptTokens, logits: Tensor) -> Tensor:
    """bool of the shape of logits [n, vocabulary], True where a token was left out; nowhere in a
    row without kept tokens."""
    counts = torch.from_numpy(kept.counts.astype(np.int64)).to(logits.device)
    mask = (counts > 0)[:, None].repeat(1, logits.shape[1])
    ids = torch.from_numpy(kept.ids.astype(np.int64)).to(logits.device)
    mask[torch.repeat_interleave(counts), ids] = False
    return mask
