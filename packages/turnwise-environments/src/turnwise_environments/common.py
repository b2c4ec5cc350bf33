"""Small things that several environments need: ids, limits, checks of packages and of options."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any, TypeVar

from turnwise.errors import ConfigError, DataError, MissingExtraError, unknown_name
from turnwise.sandbox.settings import Limits

Kind = TypeVar("Kind")


def identity(content: Any) -> str:
    """A task's id: a hash of a text, or of plain data as JSON with its keys in order.

    >>> identity("a") == identity("a") != identity(["a"])
    True
    """
    text = content if isinstance(content, str) else json.dumps(content, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def ids_with(name: str) -> Callable[[Mapping[Any, Sequence[Any]]], str]:
    """A task set's content: the ids, each with one entry of its task's secret."""
    return lambda tasks: json.dumps(
        [[one.id, one.secret[name]] for split in tasks.values() for one in split]
    )


def working_limits(seconds: float, memory: int, **others: Any) -> Limits:
    """The limits of programs that compute: `seconds` of processor time, and of the clock up to four
    times as much, since others may have the processor.

    >>> working_limits(5.0, 256 * MEBIBYTE).seconds
    20.0
    """
    clock = min(4 * seconds, seconds + 15)
    return Limits(seconds=clock, cpu_seconds=seconds, memory=memory, **others)


def check_installed(package: str, extra: str) -> None:
    """Raise MissingExtraError where an optional package is not installed; a folder of its name that
    can be imported is not it."""
    with suppress(PackageNotFoundError):
        if version(package) and find_spec(package.replace("-", "_")) is not None:
            return
    raise MissingExtraError(package, extra)


def each_once(what: str, given: Sequence[Kind], known: Sequence[Kind]) -> tuple[Kind, ...]:
    """The known kinds that are given, in their order. Raises ConfigError for none, for a kind that
    is not known, and for one that is given twice."""
    for kind in given:
        if kind not in known:
            raise ConfigError(f"{what}: {unknown_name('name', str(kind), map(str, known))}")
    chosen = tuple(kind for kind in known if kind in given)
    if not chosen or len(chosen) != len(given):
        raise ConfigError(f"{what} are some of {', '.join(map(str, known))}, each once")
    return chosen


def check_texts(record: Mapping[str, Any], names: Sequence[str], where: str) -> None:
    """Raise DataError for a record of a file in which one of these is no text, or empty."""
    for name in names:
        if not isinstance(record.get(name), str) or not record[name].strip():
            raise DataError(f"{where}: {name!r} must be there, a string that is not empty")


def words_in(text: str) -> tuple[str, ...]:
    return tuple(text.split())
