"""The trajectories of a run without their tokens: tables that are read once and kept.

Of a file only the columns that lists show are read, and it is read again when it has changed. Texts
of turns are searched in the file itself, and lengths are read for the rows that are shown.
"""

import json
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from turnwise.errors import DataError
from turnwise.storage.trajectory_rows import LATER, SCHEMA, completed
from turnwise_view.dashboard.runs import State, cannot_read, state_of

LIGHT = (
    "task",
    "prompt",
    "group",
    "episode",
    "parent",
    "first_turn",
    "outcome",
    "reward",
    "success",
    "detail",
    "turns",
    "tool_calls",
)
SEARCHED = ("prompt", "answer", "detail", "problem", "actions", "steps")
"""Columns in which a text is looked for."""
AS_JSON = ("actions", "steps")
"""The columns among them that are JSON, whose own words are not what was said."""
NEEDED = tuple(name for name in SCHEMA.names if name not in LATER)
"""Columns without which an episode cannot be shown."""
LONGEST_SHOWN = 200
"""Characters of a prompt, and of a verdict's detail, that lists show."""
KEPT_ROWS = 200_000
"""Rows that are kept in memory over all files, at most."""


class Index:
    """The tables of many files. Example: `Index().table(file)`."""

    def __init__(self, kept_rows: int = KEPT_ROWS) -> None:
        self._kept_rows = kept_rows
        self._lock = Lock()
        self._tables: OrderedDict[Path, tuple[State, pa.Table]] = OrderedDict()
        self._rows = 0

    def table(self, file: Path) -> pa.Table:
        """The light columns of a file, one row for each trajectory. Raises DataError for a file
        that cannot be read, or of an older turnwise."""
        state = state_of(file)
        with self._lock:
            known = self._tables.get(file)
            if known is not None and known[0] == state:
                self._tables.move_to_end(file)
                return known[1]
        # Without the lock, which others want; at worst a file is read twice.
        table = _shortened(read(file, LIGHT))
        with self._lock:
            self._forget(file)
            self._tables[file] = state, table
            self._rows += table.num_rows
            while self._rows > self._kept_rows and len(self._tables) > 1:
                self._forget(next(iter(self._tables)))
        return table

    def _forget(self, file: Path) -> None:
        if file in self._tables:
            self._rows -= self._tables.pop(file)[1].num_rows


@contextmanager
def opened(file: Path) -> Iterator[pq.ParquetFile]:
    """A file of trajectories, to be read inside. Raises DataError where it is damaged."""
    try:
        with pq.ParquetFile(file) as parquet:
            yield parquet
    except (pa.ArrowException, OSError) as error:
        raise DataError(cannot_read(file, error)) from error


def read(file: Path, columns: Sequence[str]) -> pa.Table:
    """Some columns of a file. Raises DataError for a damaged one, and one that lacks columns."""
    with opened(file) as parquet:
        _check(file, parquet, columns)
        return parquet.read(columns=list(columns))


def read_row(file: Path, number: int) -> dict[str, Any]:
    """A whole trajectory. Raises DataError as `read_rows` does."""
    return read_rows(file, [number])[0]


def read_rows(file: Path, numbers: Sequence[int]) -> list[dict[str, Any]]:
    """Whole trajectories in the order of their numbers as given; of the file only the groups of
    rows that they lie in are read. Raises DataError as `read` does, and where there is no such
    row."""
    found: dict[int, dict[str, Any]] = {}
    with opened(file) as parquet:
        _check(file, parquet, NEEDED)
        count = parquet.metadata.num_rows
        for number in numbers:
            if not 0 <= number < count:
                raise DataError(f"{file.stem} has no trajectory {number}: it has {count}")
        first = 0
        for group in range(parquet.num_row_groups):
            rows = parquet.metadata.row_group(group).num_rows
            wanted = sorted({number for number in numbers if 0 <= number - first < rows})
            if wanted:
                part = parquet.read_row_group(group).take([place - first for place in wanted])
                found |= zip(wanted, completed(part).to_pylist(), strict=True)
            first += rows
    return [found[number] for number in numbers]


def _check(file: Path, parquet: pq.ParquetFile, columns: Sequence[str]) -> None:
    there = set(parquet.schema_arrow.names)
    for name in columns:
        if name not in there:
            raise DataError(
                f"{file} was written by an earlier version of turnwise: it has no {name!r}; look "
                "at it with that version"
            )


def lengths(file: Path) -> list[int]:
    return [int(one) for one in pc.list_value_length(read(file, ("turn",))["turn"]).to_pylist()]


def rows_with(file: Path, text: str) -> list[bool]:
    """Whether each trajectory of a file has the text anywhere in what was said, case aside."""
    table, wanted = read(file, SEARCHED), text.lower()
    return _any(
        _confirmed(
            table[name], text, lambda said: any(wanted in one.lower() for one in _texts(said))
        )
        if name in AS_JSON
        else pc.match_substring(table[name], text, ignore_case=True).to_pylist()
        for name in SEARCHED
    )


def rows_calling(file: Path, tool: str) -> list[bool]:
    """Whether each trajectory of a file has a call of a tool of that name."""

    def calls(actions: Any) -> bool:
        return any(call["name"] == tool for action in actions for call in action["calls"])

    return _confirmed(read(file, ("actions",))["actions"], tool, calls)


def rows_with_problem(file: Path, text: str) -> list[bool]:
    """Whether each trajectory of a file has a malformed turn or a problem that says the text."""
    table, wanted = read(file, ("problem", "actions")), text.lower()

    def fails(actions: Any) -> bool:
        return any(wanted in (action["error"] or "").lower() for action in actions)

    problem = pc.match_substring(table["problem"], text, ignore_case=True).to_pylist()
    return _any([problem, _confirmed(table["actions"], text, fails)])


def _any(columns: Iterable[Sequence[bool | None]]) -> list[bool]:
    return [any(row) for row in zip(*columns, strict=True)]


def _confirmed(column: pa.ChunkedArray, text: str, fits: Callable[[Any], bool]) -> list[bool]:
    """Whether each JSON fits. Only those in which the text stands are read: that takes longer."""
    near = pc.match_substring_regex(column, _in_json(text), ignore_case=True).to_pylist()
    pairs = zip(near, column, strict=True)
    return [bool(maybe) and fits(json.loads(one.as_py())) for maybe, one in pairs]


def _texts(data: Any) -> Iterator[str]:
    """All texts in some JSON but the keys."""
    waiting = [data]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict | list):
            waiting += one.values() if isinstance(one, dict) else one


def _shortened(table: pa.Table) -> pa.Table:
    """The table with texts no longer than lists show them, and no column twice as large."""
    for name in ("prompt", "detail"):
        shown = pc.utf8_slice_codeunits(table[name], 0, LONGEST_SHOWN)
        table = table.set_column(table.schema.get_field_index(name), name, shown)
    for name in ("task", "group", "outcome", "prompt"):
        column = pc.dictionary_encode(table[name].combine_chunks())
        table = table.set_column(table.schema.get_field_index(name), name, column)
    return table


def _in_json(text: str) -> str:
    """A text as a regular expression of RE2, as JSON escapes it: `é` is written otherwise than `É`,
    so that both have to be looked for."""
    cases = ([one] if one.isascii() else sorted({one.lower(), one.upper()}) for one in text)
    return "".join(f"(?:{'|'.join(map(_literal, letters))})" for letters in cases)


def _literal(text: str) -> str:
    written = json.dumps(text)[1:-1]
    return "".join(one if one.isalnum() else f"\\x{{{ord(one):x}}}" for one in written)
