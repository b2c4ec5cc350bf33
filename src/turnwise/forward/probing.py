"""Tokens on which a model is tried before it is relied on, and how many of them.

Whether a way to compute a model gives the model's own numbers is seen by comparison, not looked up
by name. Not here: the comparisons (`forward/agreement.py`, `learning/parity.py`).
"""

import random
from collections.abc import Iterator
from typing import Any

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
"""Errors that a model's own code raises where it is run in a way that its author did not think
of."""
SHORT = 64
"""Tokens of a history that is past nothing."""
PAST = 12
"""Tokens beyond the last boundary."""
BOUNDARIES = ("window", "chunk", "block_size", "topk", "original_max_position", "n_positions")
"""Parts of the names under which configurations keep the lengths at which a model's computation
changes: of windows, of chunks, of selections among keys, and of the positions it was trained on."""


def past_boundaries(model: Any, longest: int) -> int:
    """The length of a history, at most `longest` tokens, that passes every boundary below it that
    the model's configuration names."""
    settings = model.config.get_text_config().to_dict()
    found = [
        number
        for name, number in _numbers(settings)
        if number < longest and any(part in name for part in BOUNDARIES)
    ]
    return min(longest, max([SHORT, *(number + PAST for number in found)]))


def ordinary_tokens(model: Any, count: int, seed: int = 0) -> list[int]:
    """So many token ids, drawn without regard to meaning, none of which the configuration gives a
    special one (an end, a placeholder of a picture)."""
    vocabulary: int = model.get_input_embeddings().num_embeddings
    special = {
        number
        for name, number in _numbers(model.config.to_dict())
        if name.endswith(("token_id", "token_index"))
    }
    ordinary = [token for token in range(vocabulary) if token not in special]
    return random.Random(seed).choices(ordinary or range(vocabulary), k=count)


def _numbers(settings: Any, name: str = "") -> Iterator[tuple[str, int]]:
    """Every whole number above 1, with its key."""
    if isinstance(settings, dict):
        for key, value in settings.items():
            yield from _numbers(value, str(key))
    elif isinstance(settings, list | tuple):
        for value in settings:
            yield from _numbers(value, name)
    elif isinstance(settings, int) and settings > 1:
        yield name, settings
