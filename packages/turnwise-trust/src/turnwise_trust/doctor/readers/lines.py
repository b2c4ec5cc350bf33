"""Lines of JSON, one at a time: a file may be larger than memory, be written, or be cut off."""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from turnwise.errors import DataError
from turnwise_trust.doctor.log import Remark

Row = Mapping[str, Any]
LARGEST = 256 * 1024 * 1024
"""Bytes of a file that is one value."""
LONGEST = 64 * 1024 * 1024
"""Bytes of a line that are read; a longer one counts as damaged."""


def objects(file: Path) -> Iterator[Row | Remark]:
    """The objects of a file that share a field with its first, then remarks on other lines."""
    damaged, first, whole, empty, others = 0, 0, True, True, 0
    known: Row = {}
    for number, line in _lines(file):
        whole, empty = line.endswith(b"\n"), empty and not line.strip()
        value = _value(line)
        if isinstance(value, dict):
            known = known or value
            if known and known.keys().isdisjoint(value):
                others += 1
            else:
                yield value
        elif line.strip():
            damaged, first = damaged + 1, first or number
    if others:
        yield Remark(
            f"{others} lines of {file.name} share no field with its first, and were left out: give "
            "each format or version a file of its own"
        )
    if empty:
        yield Remark(f"{file.name} is empty")
    elif damaged == 1 and not whole:
        yield Remark(f"the last line of {file.name} is cut off, and was left out")
    elif damaged:
        yield Remark(f"{damaged} lines of {file.name} are no objects, line {first} the first")


def document(file: Path) -> Any:
    """The one value that a file is. Raises DataError for a damaged one, and for a larger one than
    can be held."""
    try:
        if (size := file.stat().st_size) > LARGEST:
            raise DataError(
                f"{file} is one value of {size / 1e9:.1f} GB, and {LARGEST / 1e9:.1f} GB are read "
                "at once: give a log in lines, or a smaller one"
            )
        return json.loads(file.read_bytes())
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise DataError(f"{file} is cut off, or no JSON") from None


def first_object(file: Path) -> Row:
    """The first object of a file; an empty one where there is none in its first lines."""
    for number, line in _lines(file):
        value = _value(line)
        if isinstance(value, dict):
            return value
        if number > 100:
            break
    return {}


def number(value: Any) -> float | None:
    """A number as float; None for anything else, such as a text, a truth value or null."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def whole(value: Any) -> int | None:
    """A finite number as int, cut off; None for anything else."""
    found = number(value)
    return int(found) if found is not None and math.isfinite(found) else None


def numbers(values: Any) -> dict[str, float]:
    """The numbers among an object's values; truth values count as 0 and 1."""
    found = (
        (str(name), float(value) if isinstance(value, bool) else number(value))
        for name, value in mapping(values).items()
    )
    return {name: value for name, value in found if value is not None}


def mapping(value: Any) -> Row:
    """An object as it is; an empty one for anything else."""
    return value if isinstance(value, Mapping) else {}


def rows(value: Any) -> list[Row]:
    """The objects in a list; none of anything else."""
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


def said(content: Any) -> str:
    """The text of a message's content, or of messages: a string, or a list of parts."""
    if isinstance(content, str):
        return content
    if isinstance(content, Mapping):
        return said(content.get("text") or content.get("content") or "")
    if isinstance(content, Iterable):
        return "\n".join(filter(None, map(said, content)))
    return ""


def _lines(file: Path) -> Iterator[tuple[int, bytes]]:
    try:
        with file.open("rb") as opened:
            number = 0
            while line := opened.readline(LONGEST):
                number += 1
                yield number, line
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror}") from None


def _value(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None
