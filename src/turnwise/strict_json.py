"""JSON as its standard has it: no key twice, neither NaN nor infinity."""

import json
from typing import Any


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is there twice")
    return found


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON number")


DECODER = json.JSONDecoder(parse_constant=_refuse, object_pairs_hook=_unique)
"""A decoder that raises ValueError for other text, RecursionError for text nested too deeply."""
