"""Does a way to compute a model give the model's own numbers?

A few histories go through in one ragged batch, past every boundary that the model's configuration
names: a prompt, what an observation would add, and a few tokens one by one. Then those of one
length go through alone, since the cache gives neighbours of one size as a view and not as a copy,
which some models cannot read. After each pass the distribution of the next token is compared with
that of the model's own forward pass over each history alone, without cache, mask or padding. Not
here: the engine as a whole, with its sessions (`learning/parity.py`).
"""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from turnwise.forward.cache import PADDING, Run
from turnwise.forward.probing import FOREIGN_ERRORS, SHORT, ordinary_tokens, past_boundaries
from turnwise.forward.rounding import sensitivities
from turnwise.forward.runner import evaluating
from turnwise.forward.twin import is_rounding, longest_product

SINGLE = 4
"""Tokens at the end that are computed one by one."""
ADDED = 16
"""Tokens before those that are computed at once, by the last boundary: some on either side of
it."""
TOLERANCE = 2**10 * torch.finfo(torch.float32).eps
"""The bound for float32: 1.2e-4. Sums in another order, over a few dozen layers, stay below it."""
LOWER_TOLERANCE = 0.1
"""The bound for bfloat16, whose rounding alone makes a few hundredths."""

Pass = Callable[[Sequence[Run], NDArray[np.int64], NDArray[np.int64]], torch.Tensor]
"""(runs, ids, positions) -> logits after the last input of each row."""


def disagreement(model: Any, run: Pass, longest: int) -> float:
    """Distance of next-token log-probabilities from the model's own, for histories of at most
    `longest` tokens.

    Mean |difference| over the model's own distribution, so of tokens as it would sample them, over
    a history's passes; of the worse history. The passes have `places(model, longest)` places of
    runs. Infinite where the model's own code fails, or a number is NaN.
    """
    histories = _histories(model, past_boundaries(model, longest))
    try:
        own = [_own(model, history) for history in histories]
        found = _computed(run, histories) + _computed(run, histories[1:])
    except FOREIGN_ERRORS:
        return float("inf")
    return max(_distance(*pair) for pair in zip(found, own + own[1:], strict=True))


def tolerance(dtype: torch.dtype) -> float:
    """Largest accepted distance, where `dtype` is the lowest precision in use."""
    return TOLERANCE if dtype == torch.float32 else LOWER_TOLERANCE


def places(model: Any, longest: int) -> int:
    """Places that all runs of a comparison have together."""
    return sum(map(len, _histories(model, past_boundaries(model, longest))))


def differs_by_rounding(twin: Any, run: Pass, other: Pass, longest: int) -> bool:
    """Whether two ways to compute a twin in float32 give the same log-probabilities, for short
    histories, as far as rounding goes: each may be off by what `forward/rounding.py` allows. False
    where the model's own code fails."""
    histories = _histories(twin, min(SHORT, longest))

    def computed(way: Pass) -> list[torch.Tensor]:
        return [torch.cat(_computed(way, histories))]

    words: int = twin.get_input_embeddings().num_embeddings
    weights = [weight for weight in twin.parameters() if words not in weight.shape]
    try:
        expected = computed(other)
        (moved,) = sensitivities(lambda: computed(other), weights)
        terms = longest_product(twin)
        return is_rounding(computed(run), expected, [2 * moved], torch.float32, terms)
    except FOREIGN_ERRORS:
        return False


def _histories(model: Any, long: int) -> list[list[int]]:
    short = max(long // 3, ADDED + SINGLE + 1)
    lengths = [long, short, short] if short < long else [long, long]
    return [ordinary_tokens(model, length, seed) for seed, length in enumerate(lengths)]


def _parts(length: int) -> list[slice]:
    """List what each pass computes of a history."""
    added = ADDED if length > ADDED + SINGLE else 0
    single = min(SINGLE, length - added - 1)
    ends = [length - single - added, length - single, *range(length - single + 1, length + 1)]
    starts = [0, *ends]
    return [slice(*pair) for pair in zip(starts, ends, strict=False) if pair[0] < pair[1]]


def _computed(run: Pass, histories: Sequence[Sequence[int]]) -> list[torch.Tensor]:
    """Give each history's log-probabilities after each pass, float32[passes, vocabulary]."""
    runs, start = [], 0
    for history in histories:
        runs.append(Run(start, len(history)))
        start += len(history)
    logits = []
    for parts in zip(*(_parts(len(history)) for history in histories), strict=True):
        width = max(part.stop - part.start for part in parts)
        ids = np.zeros((len(parts), width), np.int64)
        positions = np.full((len(parts), width), PADDING, np.int64)
        for row, part in enumerate(parts):
            count = part.stop - part.start
            ids[row, width - count :] = histories[row][part]
            positions[row, width - count :] = np.arange(part.start, part.stop)
        logits.append(run(runs, ids, positions).float().log_softmax(-1))
    return list(torch.stack(logits, 1))


@torch.no_grad()
def own_logprobs(model: Any, history: Sequence[int], last: int) -> torch.Tensor:
    """Log-probabilities after each of the last tokens of a history, float32[last, vocabulary], by
    the model's own forward pass over it alone: no cache, no mask, no padding."""
    ids = torch.tensor([list(history)], device=model.device)
    known = inspect.signature(model.forward).parameters
    kept = {"logits_to_keep": last} if "logits_to_keep" in known else {}
    with evaluating(list(model.modules())):
        logits = model(input_ids=ids, use_cache=False, **kept).logits[0, -last:]
    own: torch.Tensor = logits.float().log_softmax(-1)
    return own


def _own(model: Any, history: Sequence[int]) -> torch.Tensor:
    """Give the model's own log-probabilities of one history, in the shape of `_computed`."""
    ends = [part.stop for part in _parts(len(history))]
    return own_logprobs(model, history, len(history) - ends[0] + 1)[[n - ends[0] for n in ends]]


def _distance(found: torch.Tensor, own: torch.Tensor) -> float:
    distance = float((own.exp() * (found - own).abs()).nan_to_num(0, float("inf")).sum(-1).mean())
    known = bool(found.isfinite().any() and own.isfinite().any())
    return distance if known and not found.isnan().any() else float("inf")
