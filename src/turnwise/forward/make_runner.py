"""The choice of the engine's forward pass: the first that is seen to give a model's own numbers.

Keys and values in one pool where that is right, for it batches all rows; else the model's own
caches; else none. To see it, a few histories go through in one ragged batch, past every boundary
that the model's configuration names: a prompt, what an observation would add, and a few tokens one
by one. Then those of one length go through alone, since the cache gives neighbours of one size as a
view, which some models cannot read. Each pass's distribution is compared with the model's own.
"""

import copy
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from turnwise.errors import NotSupportedError
from turnwise.forward.cache import PADDING, CacheExtent
from turnwise.forward.equality import (
    FOREIGN_ERRORS,
    SHORT,
    expected_distance,
    is_rounding,
    longest_product,
    ordinary_tokens,
    own_logprobs,
    past_boundaries,
    tolerance,
)
from turnwise.forward.images import reader_of
from turnwise.forward.own_caches import OwnRunner
from turnwise.forward.runner import ImageRunner, Runner
from turnwise.forward.small_llama import is_small_llama
from turnwise.forward.twin import shallow_twin_of

SINGLE = 8
"""Tokens at the end that are computed one by one: what a state is off by adds up."""
ADDED = 16
"""Tokens before those that are computed at once, on either side of the last boundary."""
Pass = Callable[[Sequence[CacheExtent], NDArray[np.int64], NDArray[np.int64]], torch.Tensor]
"""(runs, ids, positions) -> logits after the last input of each row."""
Way = Callable[..., Runner | OwnRunner]
"""(model, tokens of the cache) -> the pass."""

logger = logging.getLogger(__name__)


def make_runner(model: Any, tokens: int, longest: int) -> Runner | OwnRunner:
    """Make the pass for a cache of `tokens` tokens and histories of at most `longest`, chosen with
    weights of a fixed seed, so that a resumed run goes the same way. NotSupportedError for none."""
    name = type(model).__name__
    bound = tolerance(model.dtype)
    tried = shallow_twin_of(model)
    reasons = []
    for make, what in _ways(model, tried, longest):
        try:
            runner = make(tried, _places(model, longest))
        except NotSupportedError as error:
            reasons.append(str(error))
            continue
        found = _disagreement(tried, _on_new_cache(runner, tried, longest), longest)
        if found <= bound:
            if isinstance(runner, OwnRunner):
                logger.info("%s is sampled from over its own caches: %s", name, "; ".join(reasons))
            return make(model, tokens)
        distance = f"{found:.2g} nats" if math.isfinite(found) else "more than can be computed"
        reasons.append(f"{what} off by {distance}")
    length, why = past_boundaries(model, longest), "; ".join(dict.fromkeys(reasons))
    raise NotSupportedError(
        f"the embedded engine cannot sample from {name}: over histories of up to {length} tokens "
        f"it is not within {bound:.1g} nats of the model's own forward pass ({why}). "
        "Set engine.name=vllm, or choose another model"
    )


def _ways(model: Any, twin: Any, longest: int) -> Iterator[tuple[Way, str]]:
    """The ways to compute a model, the fastest first, each with words for when it disagrees."""
    pool, own = "a pool of keys is", "its own caches are"
    reader, specialised = reader_of(model), is_small_llama(model)
    kind = Runner if reader is None else partial(ImageRunner, reader=reader)
    make = partial(kind, longest=longest, specialised=specialised)
    # The written-out pass reads spans by itself.
    if not specialised and _attends_by_spans(make, twin, longest):
        yield partial(make, spans=True), pool
    yield make, pool
    if reader is not None:
        return
    for at_once, together in product((True, False), (True, False)):
        yield partial(OwnRunner, together=together, at_once=at_once), own


def _attends_by_spans(make: Way, twin: Any, longest: int) -> bool:
    """Whether attention over spans of the pool gives, up to the rounding of both, what it gives
    over copies: seen best in float32, for short histories. False where the model's code fails."""
    # A copy, since `float` is in place: the other ways are tried in the twin's own type.
    twin = copy.deepcopy(twin).float()
    size, histories = _places(twin, longest), _histories(twin, min(SHORT, longest))
    try:
        ways = make(twin, size, spans=True), make(twin, size)
    except NotSupportedError:
        return False

    def computed(way: Runner | OwnRunner) -> list[torch.Tensor]:
        return [torch.cat(_computed(_on_new_cache(way, twin, longest), histories))]

    words: int = twin.get_input_embeddings().num_embeddings
    weights = [weight for weight in twin.parameters() if words not in weight.shape]
    terms = longest_product(twin)
    try:
        found = computed(ways[0])
        return is_rounding(found, lambda: computed(ways[1]), weights, torch.float32, terms, 2)
    except FOREIGN_ERRORS:
        return False


def _on_new_cache(runner: Runner | OwnRunner, model: Any, longest: int) -> Pass:
    cache: Any = runner.empty_cache(_places(model, longest))
    return partial(runner.forward, cache=cache)


def _disagreement(model: Any, run: Pass, longest: int) -> float:
    """Distance of next-token log-probabilities from the model's own, over a history's passes; of
    the worst history. Infinite where the model's own code fails, or a number is NaN."""
    histories = _histories(model, past_boundaries(model, longest))
    try:
        own = [_own_passes(model, history) for history in histories]
        found = _computed(run, histories) + _computed(run, histories[1:])
    except torch.OutOfMemoryError:  # no word on the model's code
        raise
    except FOREIGN_ERRORS:
        return float("inf")
    return max(expected_distance(*pair) for pair in zip(found, own + own[1:], strict=True))


def _places(model: Any, longest: int) -> int:
    return sum(map(len, _histories(model, past_boundaries(model, longest))))


def _histories(model: Any, long: int) -> list[list[int]]:
    # At least as long as it takes to have as many parts as the long one: they go side by side.
    short = max(long // 3, ADDED + SINGLE + 1)
    lengths = [long, short, short] if short < long else [long, long]
    return [ordinary_tokens(model, length, seed) for seed, length in enumerate(lengths)]


def _parts(length: int) -> list[slice]:
    added = ADDED if length > ADDED + SINGLE else 0
    single = min(SINGLE, length - added - 1)
    ends = [length - single - added, length - single, *range(length - single + 1, length + 1)]
    starts = [0, *ends]
    # `starts` has the last end too; and two ends are the same where nothing is added.
    return [slice(*pair) for pair in zip(starts, ends, strict=False) if pair[0] < pair[1]]


def _computed(run: Pass, histories: Sequence[Sequence[int]]) -> list[torch.Tensor]:
    """Each history's log-probabilities after each pass, float32[passes, vocabulary]."""
    runs, start = [], 0
    for history in histories:
        runs.append(CacheExtent(start, len(history)))
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


def _own_passes(model: Any, history: Sequence[int]) -> torch.Tensor:
    """The model's own log-probabilities of one history, in the shape of `_computed`."""
    ends = [part.stop for part in _parts(len(history))]
    return own_logprobs(model, history, len(history) - ends[0] + 1)[[n - ends[0] for n in ends]]
