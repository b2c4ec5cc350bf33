"""The choice of the engine's forward pass for a model: the first that is seen to give its own
numbers.

Keys and values in one pool where that is right, for it batches all rows; else the model's own
caches; else none. Not here: the passes (`runner.py`, `image_runner.py`, `own_caches.py`), and the
comparison (`agreement.py`).
"""

import copy
import logging
import math
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any

import torch

from turnwise.errors import NotSupportedError
from turnwise.forward.agreement import (
    Pass,
    differs_by_rounding,
    disagreement,
    places,
    tolerance,
)
from turnwise.forward.image_runner import PicturedRunner
from turnwise.forward.images import reader_of
from turnwise.forward.own_caches import OwnCaches, OwnRunner
from turnwise.forward.probing import past_boundaries
from turnwise.forward.runner import Runner
from turnwise.forward.small_llama.weights import is_plain
from turnwise.forward.twin import shallow_twin_of

Way = Callable[..., Runner | OwnRunner]
"""(model, tokens of the cache) -> the pass."""

logger = logging.getLogger(__name__)


def make_runner(
    model: Any, tokens: int, longest: int, autocast: bool = False
) -> Runner | OwnRunner:
    """Make the forward pass for a cache of `tokens` tokens and histories of at most `longest`; see
    `Runner` for `autocast`. It is looked for with weights of a fixed seed, so that a run that goes
    on takes the way that it took. Raises NotSupportedError for a model that no pass of the engine
    is right for, and says by how much."""
    name = type(model).__name__
    bound = tolerance(torch.bfloat16 if autocast else model.dtype)
    tried = shallow_twin_of(model)
    reasons = []
    for make, what in _ways(model, tried, longest, autocast):
        try:
            runner = make(tried, places(model, longest))
        except NotSupportedError as error:
            reasons.append(str(error))
            continue
        found = disagreement(tried, _on_new_cache(runner, tried, longest), longest)
        if found <= bound:
            if isinstance(runner, OwnRunner):
                logger.info("%s is sampled from over its own caches: %s", name, "; ".join(reasons))
            return make(model, tokens)
        reasons.append(f"{what} off by {_in_nats(found)}")
    length, why = past_boundaries(model, longest), "; ".join(dict.fromkeys(reasons))
    raise NotSupportedError(
        f"the embedded engine cannot sample from {name}: over histories of up to {length} tokens "
        f"it is not within {bound:.1g} nats of the model's own forward pass ({why}). "
        "Set engine.name=vllm, or choose another model"
    )


def _ways(model: Any, twin: Any, longest: int, autocast: bool) -> Iterator[tuple[Way, str]]:
    """The ways to compute a model, from the fastest to the slowest, each with what is said of it
    when it does not agree."""
    pool, own = "a pool of keys is", "its own caches are"
    reader, written = reader_of(model), is_plain(model)
    kind = Runner if reader is None else partial(PicturedRunner, reader=reader)
    make = partial(kind, longest=longest, autocast=autocast, written=written)
    if not written and not autocast and _attends_by_spans(make, twin, longest):
        yield partial(make, spans=True), pool
    yield make, pool
    if autocast or reader is not None:
        return
    for at_once, together in product((True, False), (True, False)):
        yield partial(_own, together=together, at_once=at_once), own


def _attends_by_spans(make: Way, twin: Any, longest: int) -> bool:
    """Whether a model's attention gives over spans of the pool what it gives over copies of them.
    That is the same in every type, and seen best in float32."""
    twin = copy.deepcopy(twin).float()
    size = places(twin, longest)
    try:
        ways = make(twin, size, spans=True), make(twin, size)
    except NotSupportedError:
        return False
    spans, copies = (_on_new_cache(way, twin, longest) for way in ways)
    return differs_by_rounding(twin, spans, copies, longest)


def _own(model: Any, tokens: int, together: bool, at_once: bool) -> OwnRunner:
    del tokens  # its caches grow as they need
    return OwnRunner(model, together, at_once)


def _on_new_cache(runner: Runner | OwnRunner, model: Any, longest: int) -> Pass:
    cache: Any
    if isinstance(runner, OwnRunner):
        cache = OwnCaches()
    else:
        cache = runner.empty_cache(places(model, longest))
    return partial(runner.forward_on, cache)


def _in_nats(distance: float) -> str:
    return f"{distance:.2g} nats" if math.isfinite(distance) else "more than can be computed"
