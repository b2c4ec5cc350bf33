"""Log-probabilities and entropies under a plain output layer, without ever having all logits.

Logits of some rows at a time are made in memory that the next rows use again, and made again for
the gradient: memory grows neither with the vocabulary nor with the number of tokens, and all passes
over logits but the products are made in place.

Sampling masks: a token that was drawn among some of the vocabulary has its log-probability over
these alone, log pi(a) = z_a - log sum over the kept v of exp(z_v), under whatever weights, so that
all policies have one set of actions ("Keep Sampling Mask", DeepSeek-V3.2, arXiv 2512.02556).
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from turnwise.tokens import KeptTokens


def token_scores(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    temperature: float,
    rows: int,
    kept: KeptTokens | None = None,
) -> tuple[Tensor, Tensor]:
    """Log-probabilities [N] of int64[N] targets under softmax(hidden @ weight.T / temperature), and
    entropies [N], both differentiable once.

    `hidden` is [N, width], `weight` [V, width]; logits of `rows` tokens are held at once. `kept`
    are the tokens that a softmax is over.
    """
    arguments = hidden, weight, targets, temperature, rows, kept
    found: tuple[Tensor, Tensor] = _TokenScores.apply(*arguments)  # type: ignore[no-untyped-call]
    return found


class _TokenScores(torch.autograd.Function):
    """Arguments and outputs are those of `token_scores`."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        targets: Tensor,
        temperature: float,
        rows: int,
        kept: KeptTokens | None,
    ) -> tuple[Tensor, Tensor]:
        space = _Workspace(weight, temperature, min(rows, len(hidden)), kept)
        logprobs, entropies, totals = (hidden.new_empty(len(hidden)) for _ in range(3))
        for piece in _pieces(len(hidden), rows):
            logits, masses = space.fill(hidden[piece], piece)
            # Relative to the row's highest logit, as the logits are by now: it cancels out.
            totals[piece] = masses.sum(-1).log_()
            chosen = logits.gather(1, targets[piece, None])[:, 0]
            logprobs[piece] = chosen - totals[piece]
            mean = torch.linalg.vecdot(masses, logits) / totals[piece].exp()
            entropies[piece] = totals[piece] - mean  # H = log Z - E[z]
        ctx.save_for_backward(hidden, weight, targets, entropies, totals)
        ctx.set_materialize_grads(False)  # None for entropies that are only measured
        ctx.space, ctx.rows, ctx.held = space, rows, True
        return logprobs, entropies

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, of_logprobs: Tensor | None, of_entropies: Tensor | None
    ) -> tuple[Tensor | None, Tensor | None, None, None, None, None]:
        """With probabilities p of logits: d log p_t = [v is t] - p_v, d H = -p_v (log p_v + H)."""
        hidden, weight, targets, entropies, totals = ctx.saved_tensors
        of_hidden = torch.empty_like(hidden) if ctx.needs_input_grad[0] else None
        of_weight = torch.zeros_like(weight) if ctx.needs_input_grad[1] else None
        of_logprobs = torch.zeros_like(totals) if of_logprobs is None else of_logprobs
        # The last piece first: the forward pass has left its logits in the workspace.
        for piece in reversed(list(_pieces(len(hidden), ctx.rows))):
            space = ctx.space
            logits, masses = space.held() if ctx.held else space.fill(hidden[piece], piece)
            ctx.held = False
            chosen = of_logprobs[piece, None]
            masses.mul_(totals[piece, None].neg().exp_())  # p
            if of_entropies is None:
                of_logits = masses.mul_(-chosen)
            else:
                # log p + H, since log p is the logit less the total.
                logits.add_((entropies - totals)[piece, None]).mul_(of_entropies[piece, None])
                of_logits = masses.mul_(logits.add_(chosen).neg_())
            of_logits.scatter_add_(1, targets[piece, None], chosen)
            if space.temperature != 1:
                of_logits.div_(space.temperature)
            if of_hidden is not None:
                torch.mm(of_logits, weight, out=of_hidden[piece])
            if of_weight is not None:
                of_weight.addmm_(of_logits.t(), hidden[piece])
        return of_hidden, of_weight, None, None, None, None


class _Workspace:
    """Memory for the logits of some rows, and for their exponentials."""

    def __init__(
        self, weight: Tensor, temperature: float, rows: int, kept: KeptTokens | None
    ) -> None:
        self._weight, self.temperature, self._kept = weight, temperature, kept
        self._logits, self._masses = (weight.new_empty(rows, len(weight)) for _ in range(2))
        self._count = 0

    def fill(self, hidden: Tensor, piece: slice) -> tuple[Tensor, Tensor]:
        """Logits over the temperature less each row's highest, and exponentials (0: left out)."""
        self._count = len(hidden)
        logits, masses = self.held()
        torch.mm(hidden, self._weight.t(), out=logits)
        if self.temperature != 1:
            logits.div_(self.temperature)
        kept = None if self._kept is None else self._kept[piece]
        logits.sub_(highest_left(logits, kept))
        torch.exp(logits, out=masses)
        if kept is not None:
            leave_alone(masses, kept)
        return logits, masses

    def held(self) -> tuple[Tensor, Tensor]:
        return self._logits[: self._count], self._masses[: self._count]


def _pieces(count: int, rows: int) -> Iterator[slice]:
    return (slice(start, min(start + rows, count)) for start in range(0, count, rows))


LEFT_OUT = -1e9
"""The logit of a token that was left out: probability exactly 0, and finite products with that."""


def kept_at(kept: KeptTokens | None, places: Tensor) -> KeptTokens | None:
    """Take some places, int64[k], of a record, if there is one."""
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
