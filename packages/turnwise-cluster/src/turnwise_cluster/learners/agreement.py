"""Do the parts of a model, computed together, give the numbers of one process?

Which models can be divided is measured and not listed: before anything is learned, gradients and
log-probabilities of texts, another one on each rank, are compared with those of the whole model.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from turnwise.errors import NotSupportedError
from turnwise.forward.equality import SHORT, ordinary_tokens, tolerance
from turnwise.forward.hidden import base_model, note_packing
from turnwise.forward.logprobs import token_logprobs
from turnwise.forward.packing import Slicing
from turnwise.forward.twin import shallow_twin_of
from turnwise.learning.optimizer import gradients_of
from turnwise.learning.ranks import ALONE, Ranks

SMALLEST = 2**-10
"""The share of the largest gradient that counts as a weight's own, at least."""


def check_agreement(ranks: Ranks, model: nn.Module, slicing: Slicing | None = None) -> None:
    """Compare a model's twin as a part of one with the whole twin; every rank has to call it, with
    its model before that is divided, and with the slices in which rows are to be computed.

    Needs room for two copies of the model's first layers and their gradients. Raises
    NotSupportedError, on every rank, where log-probabilities or gradients differ by more than
    rounding.
    """
    base = base_model(model)
    whole, divided = (shallow_twin_of(base) for _ in range(2))
    note_packing(divided, autocast=False)
    slices = 1 if slicing is None else slicing.count
    # Neighbours that compute a row in slices have one text, which counts once.
    text = torch.tensor([ordinary_tokens(base, SHORT, ranks.rank // slices)], device=base.device)
    counts = slicing is None or slicing.rank == 0
    known, reached = _probed(whole, ALONE, None, text, counts)
    if len(set(ranks.gather(reached))) > 1:  # the sums of divided gradients would not fit together
        raise NotSupportedError(_refusal(base, ranks, "which weights have one depends on the text"))
    ranks.sum_gradients(gradients_of(whole.parameters()))
    found, _ = _probed(divided, ranks, slicing, text)
    ranks.sum_gradients(gradients_of(divided.parameters()))
    far = max(ranks.gather(max(_distances(ranks, divided, whole, found, known))))
    if not far <= tolerance(base.dtype):
        raise NotSupportedError(_refusal(base, ranks, f"they are off by {far:.2g} of the largest"))


def _probed(
    twin: Any, ranks: Ranks, slicing: Slicing | None, text: Tensor, counts: bool = True
) -> tuple[Tensor, tuple[bool, ...]]:
    """Log-probabilities of a text [1, n] by a twin that the ranks divide, and which weights they
    gave a gradient, which these then have; of zeros where it does not count."""
    chosen = torch.ones_like(text, dtype=torch.bool)
    compute = ranks.shard(twin)
    with torch.enable_grad():
        score = partial(token_logprobs, slicing=slicing)
        logprobs: Tensor = compute(score, text, chosen, text[0], 1.0, False)[0]
        # Another weight for each token, so that tokens in a wrong order show.
        weights = counts * torch.linspace(-1, 1, len(logprobs))
        torch.autograd.backward(logprobs @ weights.to(logprobs))
    return logprobs.detach(), tuple(weight.grad is not None for weight in twin.parameters())


def _distances(
    ranks: Ranks, divided: nn.Module, whole: nn.Module, found: Tensor, known: Tensor
) -> Iterator[float]:
    """Differences of the log-probabilities, and of each gradient as a share of its largest number;
    infinite where one is none.

    Some weights have a gradient that is nothing but rounding (biases of keys), so none counts as
    smaller than SMALLEST of the largest of all.
    """
    pairs = [
        (part, weight.grad, float(weight.grad.abs().max()))
        for part, weight in zip(divided.parameters(), whole.parameters(), strict=True)
        if weight.grad is not None
    ]
    least = SMALLEST * max(largest for _, _, largest in pairs)
    yield _farthest(found, known)
    for part, gradient, largest in pairs:
        assert part.grad is not None
        yield _farthest(ranks.whole(part.grad), gradient) / max(largest, least)


def _farthest(found: Tensor, known: Tensor) -> float:
    if not known.numel():
        return 0.0
    return float((found - known).abs().max().nan_to_num(float("inf")))


def _refusal(base: nn.Module, ranks: Ranks, reason: str) -> str:
    return (
        f"cluster.learners is {ranks.count}, and {type(base).__name__}, divided, does not give the "
        f"gradients of one process: {reason}. Set cluster.learners=1"
    )
