"""Which forward pass the engine has for a model: the first that is seen to give its own numbers.

Keys and values in one pool where that is right, for it batches all rows; else the model's own
caches; else none. Not here: the passes (`runner.py`, `pictured.py`, `own_caches.py`), and the
comparison (`agreement.py`).
"""

import logging
import math
from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any

import torch

from turnwise.engines.agreement import disagreement, places, tolerance
from turnwise.engines.own_caches import OwnCaches, OwnRunner
from turnwise.engines.pictured import PicturedRunner
from turnwise.engines.runner import Runner
from turnwise.errors import ConfigError, NotSupportedError
from turnwise.models.probing import past_boundaries
from turnwise.models.vision import reader_of

logger = logging.getLogger(__name__)


def make_runner(
    model: Any, tokens: int, longest: int, autocast: bool = False
) -> Runner | OwnRunner:
    """For a cache of `tokens` tokens and histories of at most `longest`; see `Runner` for
    `autocast`. Raises NotSupportedError for a model that no pass of the engine is right for, and
    says by how much."""
    name = type(model).__name__
    bound = tolerance(torch.bfloat16 if autocast else model.dtype)
    reasons = []
    for runner, reason in _candidates(model, tokens, longest, autocast):
        if runner is None:
            reasons.append(reason)
            continue
        found = _disagreement(runner, model, longest)
        if found <= bound:
            if isinstance(runner, OwnRunner):
                logger.info("%s is sampled from over its own caches: %s", name, "; ".join(reasons))
            return runner
        reasons.append(f"{reason} {_in_nats(found)}")
    length, why = past_boundaries(model, longest), "; ".join(dict.fromkeys(reasons))
    raise NotSupportedError(
        f"the embedded engine cannot sample from {name}: over histories of up to {length} tokens "
        f"it is not within {bound:.1g} nats of the model's own forward pass ({why}). "
        "Set engine.name=vllm, or choose another model"
    )


def _candidates(
    model: Any, tokens: int, longest: int, autocast: bool
) -> Iterator[tuple[Runner | OwnRunner | None, str]]:
    """Each with how to begin the sentence on its disagreement; None where there is none, with the
    reason."""
    reader = reader_of(model)
    words = "a pool of keys is off by"
    try:
        if reader is not None:
            yield PicturedRunner(model, tokens, longest, reader, autocast), words
            return
        pooled = Runner(model, tokens, longest, autocast)
        yield pooled, words
        if pooled.by_spans:
            yield Runner(model, tokens, longest, autocast, spans=False), words
    except NotSupportedError as error:
        if autocast:
            raise ConfigError(
                f"engine.autocast is for small models of the shapes of Llama and Qwen3: {error}; "
                "set it to false, or model.dtype to bfloat16"
            ) from error
        yield None, str(error)
    if autocast:
        return
    for at_once, together in product((True, False), (True, False)):
        try:
            yield OwnRunner(model, together, at_once), "its own caches are off by"
        except NotSupportedError as error:
            yield None, str(error)
            return


def _disagreement(runner: Runner | OwnRunner, model: Any, longest: int) -> float:
    cache: Any
    if isinstance(runner, OwnRunner):
        cache = OwnCaches()
    else:
        cache = runner.empty_cache(places(model, longest))
    return disagreement(model, partial(runner.forward_on, cache), longest)


def _in_nats(distance: float) -> str:
    return f"{distance:.2g} nats" if math.isfinite(distance) else "more than can be computed"
