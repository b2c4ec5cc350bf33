"""The places at which contexts of one episode part: what `turnwise agent check` explains."""

from dataclasses import dataclass

import numpy as np

from turnwise.tokens import Tokens


@dataclass(frozen=True)
class Fork:
    """A context that shares its beginning with an earlier one. Example: Fork(1, 0, 120, 180)."""

    context: int
    other: int
    """The earlier context that it shares most with."""
    shared: int
    """Tokens that both begin with."""
    length: int


def forks(tokens: Tokens) -> list[Fork]:
    """The fork of each context but the first."""
    contexts = [tokens.ids[span] for span in tokens.spans]
    found = []
    for number, context in enumerate(contexts[1:], 1):
        shared = [_shared(context, other) for other in contexts[:number]]
        other = int(np.argmax(shared))
        found.append(Fork(number, other, shared[other], len(context)))
    return found


def _shared(one: np.ndarray, other: np.ndarray) -> int:
    length = min(len(one), len(other))
    different = np.flatnonzero(one[:length] != other[:length])
    return int(different[0]) if len(different) else length
