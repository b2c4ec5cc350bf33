"""Top-k, top-p and min-p: which tokens may be sampled at all."""

import math

import torch
from torch import Tensor


def truncate(logprobs: Tensor, top_k: Tensor, top_p: Tensor, min_p: Tensor) -> Tensor:
    """Log-probabilities of what is left, which sum to 1 again; -inf for tokens left out.

    In transformers' order: the `top_k` most likely tokens, int64[n], 0 for all; of these the fewest
    that have at least `top_p` of their probability, above 0, 1 for all (arXiv 1904.09751); of these
    those at least `min_p` times as likely as the most likely, which always stays (arXiv
    2407.01082). Of equally likely tokens the first come first.
    """
    ordered, tokens = logprobs.sort(dim=-1, descending=True, stable=True)
    ranks = torch.arange(logprobs.shape[1], device=logprobs.device)
    most = torch.where(top_k > 0, top_k, len(ranks))[:, None]
    kept = ranks < most
    mass = ordered.exp().double() * kept
    before = mass.cumsum(-1) - mass
    share = top_p[:, None]
    kept &= (before < share * mass.sum(-1, keepdim=True)) | (share >= 1)
    kept &= ordered >= ordered[:, :1] + min_p.log()[:, None]
    kept[:, 0] = True
    left = ordered.masked_fill(~kept, -math.inf).log_softmax(-1)
    return torch.empty_like(left).scatter_(1, tokens, left)
