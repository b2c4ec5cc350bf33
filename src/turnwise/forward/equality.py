"""Comparisons of other ways to compute a model with the model's own forward pass.

Each way is compared with the model's own pass before it is relied on; nothing is looked up by name.
There are two measures, each with one bound:

- `is_rounding`, for layers that turnwise computes itself: the results are, up to rounding, those of
  the model's own layers in float64, by the bound below.
- `distance`, `expected_distance` and `is_near`, for ways that run a model's own layers:
  log-probabilities in nats, beside those of `own_logprobs`, within `tolerance`.

The texts are ordinary tokens, as long as it takes to pass every boundary that the model's
configuration names. Decisions for a whole run are made on a twin (`twin.py`).

The unit of the bound is u, half the type's machine epsilon: the most by which rounding changes a
number, as a part of it. A sum of n terms rounds up to n times; since errors are of either sign it
ends about as far from the exact sum as if each term had been changed by sqrt(n) u, with a small
factor for the worst of many sums (Higham and Mary, A New Approach to Probabilistic Rounding Error
Analysis, SIAM J. Sci. Comput. 41(5), 2019). How far such changes of terms move what comes out at
the end is a property of the exact computation and is measured in float64, which no processor's
order of summation disturbs. Hence

    allowed = FACTOR * sqrt(terms) * u * sensitivity

holds wherever the same mathematics is computed, in whatever order. An error of another kind (a
wrong weight, a missing head, a rotation that is off by one) is not proportional to u, and exceeds
it by orders of magnitude.

Where a model's own layers run in another way, in bfloat16, a few times as much is allowed as
rounding alone moves the same computation by (`rounding_to_bfloat16`).
"""

import inspect
import math
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from turnwise.forward.attention import evaluating

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
    """The length of a history, at most `longest`, past every boundary of the configuration."""
    settings = model.config.get_text_config().to_dict()
    found = [
        number
        for name, number in _numbers(settings)
        if number < longest and any(part in name for part in BOUNDARIES)
    ]
    return min(longest, max([SHORT, *(number + PAST for number in found)]))


def ordinary_tokens(model: Any, count: int, seed: int = 0) -> list[int]:
    """Token ids drawn without regard to meaning, none of them special by the configuration."""
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
    """Mean |difference| of log-probabilities [n, vocabulary], weighted by `own`; inf for NaN."""
    # A token that both leave out is 0 x NaN here, and counts as nothing. That hides a NaN in
    # `found`, which is therefore looked for by itself.
    apart = float((own.exp() * (found - own).abs()).nan_to_num(0, float("inf")).sum(-1).mean())
    known = bool(found.isfinite().any() and own.isfinite().any())
    return apart if known and not found.isnan().any() else float("inf")


def is_near(found: Tensor, own: Tensor, dtype: torch.dtype) -> bool:
    """Whether each log-probability is within `tolerance` of `own`, absolutely and relatively."""
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


FACTOR = 4.0
"""The worst of many sums, and what is rounded between them (norms, exponentials, gates)."""
STEP = 2.0**-13
"""The part by which weights are changed: far above the float32 rounding of norms, far below 1."""
ROUNDINGS = 3.0
"""Times `rounding_to_bfloat16` that two computations in bfloat16 may be apart."""
DRAWS = 3
"""Changes in random directions; the largest movement counts."""


def allowed(dtype: torch.dtype, terms: int, sensitivity: float) -> float:
    """The largest distance from the exact number of one computed in `dtype`.

    `terms` is the length of the longest sum with partial sums in `dtype`; 1 for products in
    bfloat16, which are summed in float32. `sensitivity` is what the terms of one sum add up to in
    size, or for a network what `sensitivities` finds.
    """
    return FACTOR * math.sqrt(terms) * torch.finfo(dtype).eps / 2 * sensitivity


def sensitivities(
    function: Callable[[], Sequence[Tensor]], weights: Iterable[Tensor]
) -> list[float]:
    """The largest movement of each tensor of a function of float64 weights, per part by which each
    weight is changed at random, in place and from a fixed seed; then all are put back."""
    changed = [weight for weight in weights if weight.is_floating_point()]
    # Kept, and not computed back: a weight that was scaled up and down again is another number.
    before = [weight.detach().clone() for weight in changed]
    exact = [part.detach().clone() for part in function()]
    generator = torch.Generator().manual_seed(0)
    found = [0.0] * len(exact)
    try:
        for _ in range(DRAWS):
            with torch.no_grad():
                for weight, kept in zip(changed, before, strict=True):
                    signs = torch.randint(0, 2, kept.shape, generator=generator) * 2 - 1
                    # In proportion, as rounding changes a number; a weight of 0 stays 0.
                    weight.copy_(kept * (1 + STEP * signs.to(kept)))
            for index, (part, there) in enumerate(zip(function(), exact, strict=True)):
                if there.numel():
                    moved = float((part.detach() - there).abs().max()) / STEP
                    found[index] = max(found[index], moved)
    finally:
        with torch.no_grad():
            for weight, kept in zip(changed, before, strict=True):
                weight.copy_(kept)
    return found


class InFloat32(TorchFunctionMode):
    """Computes in float32 inside, whatever the type of a model's weights, which are converted where
    they are used: the model is not in memory twice."""

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        del types
        args, kwargs = tree_map(_in_float32, (args, kwargs or {}))
        return function(*args, **kwargs)


def _in_float32(value: Any) -> Any:
    half = isinstance(value, Tensor) and value.dtype in (torch.bfloat16, torch.float16)
    return value.float() if half else value


@torch.no_grad()
def rounding_to_bfloat16(function: Callable[[], Tensor], device: torch.device) -> Tensor:
    """The distance of a function's results in bfloat16 from float32's; 0 where one is infinite."""
    with torch.autocast(device.type, torch.bfloat16):
        rounded = function()
    with InFloat32():
        exact = function()
    return (rounded - exact).abs().nan_to_num(0.0, posinf=0.0)
