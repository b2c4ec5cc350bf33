"""Answers that are the cells of a result: one value, or several in any order.

A number is compared as a number (`1` is `1.0`), anything else as a short answer (`answer.py`).
Several values are a JSON array, or stand on lines of their own or with commas between them. Not
here: tables of several columns.
"""

import json
import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from turnwise.rewards.answer import normalise
from turnwise_environments.rewards.numeric import read_answer

_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")


def cells_match(answer: str | None, cells: Sequence[str]) -> bool:
    """Whether an answer is these cells, each once, and no others. Never for an empty answer.

    >>> cells_match("bob, ada", ["ada", "bob"]), cells_match("3.0", ["3"]), cells_match("3", ["4"])
    (True, True, False)
    """
    return share_of_cells(answer, cells) == 1.0


def share_of_cells(answer: str | None, cells: Sequence[str]) -> float:
    """The cells that an answer has, as a share of all that are right or in it, from 0 to 1: to
    answer with everything earns little.

    >>> share_of_cells("ada, bob", ["ada"]), share_of_cells("ada", ["ada", "eve"])
    (0.5, 0.5)
    """
    text = (answer or "").strip()
    found = [(_common(parts, cells), len(parts)) for parts in _readings(text)] if text else []
    return max((common / (count + len(cells) - common) for common, count in found), default=0.0)


def _forms(text: str, of_cell: bool = False) -> set[tuple[str, str | Fraction]]:
    """List all that an answer or a cell can be taken for: they are the same if they share one. A
    cell with more than digits is no number: `3 kg` is not `3`."""
    forms = {("words", normalise(text)), ("text", text.strip())}
    number = None if of_cell and not _NUMBER.fullmatch(text.strip()) else read_answer(text)
    return {form for form in forms if form[1]} | ({("number", number.value)} if number else set())


def _readings(text: str) -> list[list[str]]:
    """The ways in which a text can be a list."""
    found = [[text], text.split("\n"), text.split(",")]
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError):
        return found
    if isinstance(value, list) and all(isinstance(part, str | int | float) for part in value):
        found.append([str(part) for part in value])
    return found


def _common(parts: Sequence[str], cells: Sequence[str]) -> int:
    """How many cells have a part of their own."""
    left = [_forms(part) for part in parts]
    for cell in cells:
        wanted = _forms(cell, of_cell=True)
        place = next((i for i, forms in enumerate(left) if forms & wanted), None)
        if place is not None:
            del left[place]
    return len(parts) - len(left)
