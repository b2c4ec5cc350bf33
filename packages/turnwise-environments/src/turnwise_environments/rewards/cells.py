"""Answers that are the cells of a result: one value, or several in any order.

A number is compared as a number (`1` is `1.0`), anything else as a short answer (`answer.py`).
Several values are a JSON array, or stand on lines of their own or with commas between them. Not
here: tables of several columns.
"""

import json
import re
from collections.abc import Sequence
from typing import Any

from turnwise.rewards.answer import exact_match
from turnwise_environments.rewards.numeric import matches

_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")


def cells_match(answer: str | None, cells: Sequence[str]) -> bool:
    """Whether an answer is these cells, each once, and no others. Never for an empty answer.

    >>> cells_match("bob, ada", ["ada", "bob"]), cells_match("3.0", ["3"]), cells_match("3", ["4"])
    (True, True, False)
    """
    text = (answer or "").strip()
    if not text or not cells:
        return False
    if len(cells) == 1 and cell_matches(text, cells[0]):
        return True
    return any(
        _common(parts, cells) == len(cells) for parts in _readings(text) if len(parts) == len(cells)
    )


def share_of_cells(answer: str | None, cells: Sequence[str]) -> float:
    """The cells that an answer has, as a share of all that are right or in it, from 0 to 1: to
    answer with everything earns little.

    >>> share_of_cells("ada, bob", ["ada"]), share_of_cells("ada", ["ada", "eve"])
    (0.5, 0.5)
    """
    if cells_match(answer, cells):
        return 1.0
    text = (answer or "").strip()
    found = [(_common(parts, cells), len(parts)) for parts in _readings(text)] if text else []
    return max((common / (count + len(cells) - common) for common, count in found), default=0.0)


def cell_matches(answer: str, cell: str) -> bool:
    """Whether a value is the accepted one."""
    if _NUMBER.fullmatch(cell.strip()) and matches(answer, cell):
        return True
    return exact_match(answer, [cell]) or (bool(answer.strip()) and answer.strip() == cell.strip())


def _readings(text: str) -> list[list[str]]:
    """The ways in which a text can be a list."""
    found = [text.split("\n"), text.split(",")]
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError):
        return found
    if isinstance(value, list) and all(isinstance(part, str | int | float) for part in value):
        found.append([str(part) for part in value])
    return found


def _common(parts: Sequence[str], cells: Sequence[str]) -> int:
    """How many cells have a part of their own."""
    left = list(parts)
    for cell in cells:
        place = next((i for i, part in enumerate(left) if cell_matches(part, cell)), None)
        if place is not None:
            del left[place]
    return len(parts) - len(left)
