"""The choice of the tokens that begin a model's next context when its window is full.

A new context is made of tokens of the old one, chosen and never rendered or encoded again: what the
model wrote stays as it was sampled. Each function gives their places in the record. A turn here is
what was sampled in it and what came after, up to where the next turn begins.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from turnwise.tokens import Source, Tokens

Places = NDArray[np.int64]

KEPT = 0.5
"""The share of `rollout.max_tokens` that a new context may fill: the next is turns away."""
SHOWN = 16
"""Tokens that are left of an observation that is cut short."""
REQUEST = (
    "Your context is full, and what you have read and written so far will be gone. Sum up what the "
    "task still needs: what you found out, what you tried, what is left to do. What came of your "
    "last action will be shown to you after your summary."
)
SAMPLED = (Source.MODEL, Source.INHERITED)
OBSERVED = (Source.TOOL, Source.ENVIRONMENT)


def drop(tokens: Tokens, room: int) -> Places:
    """The prompt, and as many of the latest turns as fit into `room` tokens; always the last."""
    prompt, later = _parts(tokens)
    kept = later[:0]  # empty, of the type of places
    for turn in np.unique(tokens.turn[later])[::-1]:
        own = later[tokens.turn[later] == turn]
        if len(kept) and len(prompt) + len(kept) + len(own) > room:
            break
        kept = np.concatenate([own, kept])
    return np.concatenate([prompt, kept])


def truncate(tokens: Tokens, room: int) -> Places:
    """All turns, but of observations, the earliest first, only the beginnings, until the rest fits
    into `room` tokens. What a user said stays."""
    prompt, later = _parts(tokens)
    observed = np.isin(tokens.source[later], OBSERVED)
    # Where an observation begins, where it ends, where the next one begins, and so on.
    edges = np.flatnonzero(np.diff(np.concatenate([[False], observed, [False]]).astype(np.int8)))
    kept = np.ones(len(later), np.bool_)
    for start, end in zip(edges[::2], edges[1::2], strict=True):
        if len(prompt) + int(kept.sum()) <= room:
            break
        kept[start + SHOWN : end] = False
    return np.concatenate([prompt, later[kept]])


def summarise(tokens: Tokens, room: int) -> Places:
    """The prompt and the last sampled turn, which is the summary."""
    del room
    prompt, later = _parts(tokens)
    last = tokens.turn[tokens.mask][-1]
    return np.concatenate([prompt, later[tokens.mask[later] & (tokens.turn[later] == last)]])


COMPACTIONS: dict[str, Callable[[Tokens, int], Places]] = {
    "drop": drop,
    "truncate": truncate,
    "summarise": summarise,
}
"""The functions by `rollout.context`: (record, tokens that should be left) -> places, in order."""


def forget(tokens: Tokens) -> Places:
    """The episode's first message alone."""
    # argmax of a mask is the place of its first True.
    return np.arange(np.argmax(np.isin(tokens.source, SAMPLED)))


def _parts(tokens: Tokens) -> tuple[Places, Places]:
    """Places of the last context: its prompt, and what follows from the first sampled token on."""
    span = tokens.spans[-1]
    sampled = np.isin(tokens.source[span], SAMPLED)
    first = span.start + (int(np.argmax(sampled)) if sampled.any() else len(sampled))
    return np.arange(span.start, first), np.arange(first, len(tokens))
