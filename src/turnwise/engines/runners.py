"""Which forward pass the engine has for a model: the first that is seen to give its own numbers.

Keys and values in one pool where that is right, for it batches all rows; else the model's own
caches; else none. Not here: the passes (`runner.py`, `pictured.py`, `own_caches.py`), and the
comparison (`agreement.py`).
"""

import logging
import math
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any

import torch

from turnwise.engines.agreement import disagreement, places, tolerance
from turnwise.engines.own_caches import OwnCaches, OwnRunner
from turnwise.engines.pictured import PicturedRunner
from turnwise.engines.runner import Runner
from turnwise.errors import NotSupportedError
from turnwise.models.plain import LARGEST
from turnwise.models.probing import past_boundaries
from turnwise.models.twin import twin_of
from turnwise.models.vision import reader_of

Way = Callable[[Any, int], Runner | OwnRunner]
"""(model, tokens of the cache) -> the pass."""

logger = logging.getLogger(__name__)


def make_runner(
    model: Any, tokens: int, longest: int, autocast: bool = False
) -> Runner | OwnRunner:
    """For a cache of `tokens` tokens and histories of at most `longest`; see `Runner` for
    `autocast`. It is looked for with weights of a fixed seed where a second model costs little, so
    that a run that goes on takes the way that it took. Raises NotSupportedError for a model that no
    pass of the engine is right for, and says by how much."""
    name = type(model).__name__
    bound = tolerance(torch.bfloat16 if autocast else model.dtype)
    tried = twin_of(model) if model.num_parameters() <= LARGEST else model
    reasons = []
    for make, what in _ways(model, longest, autocast):
        try:
            runner = make(tried, places(model, longest))
        except NotSupportedError as error:
            reasons.append(str(error))
            continue
        found = _disagreement(runner, tried, longest)
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


def _ways(model: Any, longest: int, autocast: bool) -> Iterator[tuple[Way, str]]:
    """From the fastest to the slowest, each with what is said of it when it does not agree."""
    pool, own = "a pool of keys is", "its own caches are"
    reader = reader_of(model)
    if reader is not None:
        yield partial(_pictured, longest=longest, reader=reader, autocast=autocast), pool
        return
    yield partial(Runner, longest=longest, autocast=autocast), pool
    if autocast:
        return
    yield partial(Runner, longest=longest, spans=False), pool
    for at_once, together in product((True, False), (True, False)):
        yield partial(_own, together=together, at_once=at_once), own


def _pictured(model: Any, tokens: int, longest: int, reader: Any, autocast: bool) -> Runner:
    return PicturedRunner(model, tokens, longest, reader, autocast)


def _own(model: Any, tokens: int, together: bool, at_once: bool) -> OwnRunner:
    del tokens  # its caches grow as they need
    return OwnRunner(model, together, at_once)


def _disagreement(runner: Runner | OwnRunner, model: Any, longest: int) -> float:
    cache: Any
    if isinstance(runner, OwnRunner):
        cache = OwnCaches()
    else:
        cache = runner.empty_cache(places(model, longest))
    return disagreement(model, partial(runner.forward_on, cache), longest)


def _in_nats(distance: float) -> str:
    return f"{distance:.2g} nats" if math.isfinite(distance) else "more than can be computed"
