"""JSON as its standard has it: no key twice, neither NaN nor infinity."""

import json
import math
from typing import Any


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is there twice")
    return found


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON number")


def _finite(written: str) -> float:
    number = float(written)
    if math.isinf(number):
        raise ValueError(f"{written[:20]} is too large a number")
    return number


DECODER = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite, object_pairs_hook=_unique)
"""A decoder that raises ValueError for other text, RecursionError for text nested too deeply."""
