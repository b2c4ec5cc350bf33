"""Comparisons of other ways to compute a model with the model's own forward pass.

A model may be computed over a pool of keys, by written-out layers, as trees, with an output layer
applied elsewhere, or on a server. Each way is compared with the model's own pass before it is
relied on; nothing is looked up by name. There are two measures, each with one bound:

- `is_rounding`, for layers that turnwise computes itself: the results are, up to rounding, those of
  the model's own layers in float64, by the bound of `rounding.py`.
- `distance`, `expected_distance` and `is_near`, for ways that run a model's own layers:
  log-probabilities in nats, beside those of `own_logprobs`, within `tolerance`.

The texts are ordinary tokens, as long as it takes to pass every boundary that the model's
configuration names. Decisions for a whole run are made on a twin (`twin.py`).
"""

import inspect
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from turnwise.forward.attention import evaluating
from turnwise.forward.rounding import allowed, sensitivities

FOREIGN_ERRORS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    NotImplementedError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""Errors of a model's own code where it is run in a way that its author did not think of."""
TOLERANCE = 2**10 * torch.finfo(torch.float32).eps
"""The bound for float32: 1.2e-4. Sums in another order, over a few dozen layers, stay below it."""
LOWER_TOLERANCE = 0.1
"""The bound for bfloat16, whose rounding alone makes a few hundredths."""
PROBE = 8
"""Tokens of a text that need not pass anything."""
SHORT = 64
"""Tokens of a history that is past nothing."""
PAST = 12
"""Tokens beyond the last boundary."""
BOUNDARIES = ("window", "chunk", "block_size", "topk", "original_max_position", "n_positions")
"""Parts of the names under which configurations keep the lengths at which a model's computation
changes: of windows, of chunks, of selections among keys, and of the positions it was trained on."""


def past_boundaries(model: Any, longest: int) -> int:
    """The length of a history, at most `longest`, that passes every boundary that the configuration
    names."""
    settings = model.config.get_text_config().to_dict()
    found = [
        number
        for name, number in _numbers(settings)
        if number < longest and any(part in name for part in BOUNDARIES)
    ]
    return min(longest, max([SHORT, *(number + PAST for number in found)]))


def ordinary_tokens(model: Any, count: int, seed: int = 0) -> list[int]:
    """Token ids drawn without regard to meaning, none of which the configuration gives a special
    one."""
    vocabulary: int = model.get_input_embeddings().num_embeddings
    special = {
        number
        for name, number in _numbers(model.config.to_dict())
        if name.endswith(("token_id", "token_index"))
    }
    ordinary = [token for token in range(vocabulary) if token not in special]
    # A small vocabulary may have special tokens alone.
    return random.Random(seed).choices(ordinary or range(vocabulary), k=count)


def _numbers(settings: Any, name: str = "") -> Iterator[tuple[str, int]]:
    if isinstance(settings, dict):
        for key, value in settings.items():
            yield from _numbers(value, str(key))
    elif isinstance(settings, list | tuple):
        for value in settings:
            yield from _numbers(value, name)
    # Booleans are ints as well; like 0 and 1 they are switches, and no lengths.
    elif isinstance(settings, int) and settings > 1:
        yield name, settings


def tolerance(dtype: torch.dtype) -> float:
    """Largest accepted distance, where `dtype` is the lowest precision in use."""
    return TOLERANCE if dtype == torch.float32 else LOWER_TOLERANCE


@torch.no_grad()
def own_logprobs(model: Any, history: Sequence[int], last: int, temperature: float = 1.0) -> Tensor:
    """Log-probabilities after each of a history's last tokens, float32[last, vocabulary], by the
    model's own pass over it alone: no cache, no mask, no padding."""
    ids = torch.tensor([list(history)], device=model.device)
    known = inspect.signature(model.forward).parameters
    # The logits of a long text would take gigabytes: models that can leave them out do.
    kept = {"logits_to_keep": last} if "logits_to_keep" in known else {}
    with evaluating(list(model.modules())):
        logits = model(input_ids=ids, use_cache=False, **kept).logits[0, -last:]
    own: Tensor = (logits.float() / temperature).log_softmax(-1)
    return own


def distance(found: Tensor, own: Tensor) -> float:
    """Mean |difference| of log-probabilities [n] of given tokens, in nats; infinite for a NaN."""
    return float((found - own).abs().nan_to_num(float("inf")).mean())


def expected_distance(found: Tensor, own: Tensor) -> float:
    """Mean |difference| of log-probabilities [n, vocabulary], weighted by the model's own; infinite
    for NaN."""
    # A token that both leave out is 0 x NaN here, and counts as nothing. That hides a NaN in
    # `found`, which is therefore looked for by itself.
    apart = float((own.exp() * (found - own).abs()).nan_to_num(0, float("inf")).sum(-1).mean())
    known = bool(found.isfinite().any() and own.isfinite().any())
    return apart if known and not found.isnan().any() else float("inf")


def is_near(found: Tensor, own: Tensor, dtype: torch.dtype) -> bool:
    """Whether each log-probability is within `tolerance` of the model's own, absolutely and
    relatively."""
    bound = tolerance(dtype)
    return torch.allclose(found, own, rtol=bound, atol=bound)


def is_rounding(
    found: Sequence[Tensor],
    exact: Callable[[], Sequence[Tensor]],
    weights: Iterable[Tensor],
    dtype: torch.dtype,
    terms: int,
    times: float = 1.0,
) -> bool:
    """Whether `found`, computed in `dtype` with sums of `terms` terms, is up to rounding what
    `exact` computes with `weights`. `times` widens the bound where `exact` rounds as well."""
    moved = sensitivities(exact, weights)
    # Products in bfloat16 add up in float32 and are rounded once.
    count = terms if dtype == torch.float32 else 1
    return all(
        float((one - other).abs().max()) <= times * allowed(dtype, count, by)
        for one, other, by in zip(found, exact(), moved, strict=True)
    )


def longest_product(model: Any) -> int:
    """Terms that the longest product of a model's layers adds up, at most."""
    words: int = model.get_input_embeddings().num_embeddings
    sizes = [weight.shape[-2:] for weight in model.parameters() if weight.ndim > 1]
    # The long side of the embedding and of the output layer counts words, and is never summed over.
    return max((int(max(size)) for size in sizes if words not in size), default=words)
