"""The trajectories of a run without their tokens: tables that are read once and kept.

Of a file only the columns that lists show are read, and it is read again when it has changed. Texts
of turns are searched in the file itself, and lengths are read for the rows that are shown.
"""

import json
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
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
    "answer",
    "turns",
    "tool_calls",
)
SEARCHED = ("prompt", "answer", "detail", "problem", "actions", "steps")
"""Columns in which a text is looked for."""
AS_JSON = ("actions", "steps")
"""The columns among them that are JSON."""
NEEDED = tuple(name for name in SCHEMA.names if name not in LATER)
"""Columns without which an episode cannot be shown."""
LONGEST_PROMPT = 200
"""Characters of a prompt that lists show."""
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
                found |= zip(wanted, map(completed, part.to_pylist()), strict=True)
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
    # In JSON a text stands as it is escaped there.
    table, written = read(file, SEARCHED), json.dumps(text)[1:-1]
    return _any(
        pc.match_substring(table[name], written if name in AS_JSON else text, ignore_case=True)
        for name in SEARCHED
    )


def rows_calling(file: Path, tool: str) -> list[bool]:
    """Whether each trajectory of a file has a call of a tool of that name."""
    actions = read(file, ("actions",))["actions"]
    return _any([pc.match_substring(actions, f'"name": "{tool}"')])


def rows_with_problem(file: Path, text: str) -> list[bool]:
    """Whether each trajectory of a file has a malformed turn or a problem that says the text."""
    table, pattern = read(file, ("problem", "actions")), f'"error": "[^"]*{_literal(text)}'
    problem = pc.match_substring(table["problem"], text, ignore_case=True)
    return _any([problem, pc.match_substring_regex(table["actions"], pattern, ignore_case=True)])


def _any(found: Iterable[Any]) -> list[bool]:
    return [bool(one) for one in reduce(pc.or_kleene, found).to_pylist()]  # null or true: true


def _shortened(table: pa.Table) -> pa.Table:
    """The table with prompts no longer than lists show them, and no column twice as large."""
    prompts = pc.utf8_slice_codeunits(table["prompt"], 0, LONGEST_PROMPT)
    table = table.set_column(table.schema.get_field_index("prompt"), "prompt", prompts)
    for name in ("task", "group", "outcome", "prompt"):
        column = pc.dictionary_encode(table[name].combine_chunks())
        table = table.set_column(table.schema.get_field_index(name), name, column)
    return table


def _literal(text: str) -> str:
    """A text as a regular expression of RE2."""
    return "".join(one if one.isalnum() or one == " " else f"\\x{{{ord(one):x}}}" for one in text)
