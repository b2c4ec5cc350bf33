"""The trajectories of a run without their tokens: tables that are read once and kept.

Of a file only the columns that lists show are read, and it is read again when it has changed. Texts
of turns are searched in the file itself, and lengths are read for the rows that are shown. Not
here: what is chosen (`episodes.py`), and a trajectory's tokens (`tokens.py`).
"""

from collections import OrderedDict
from pathlib import Path
from threading import Lock
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from turnwise.dashboard.runs import file_kind
from turnwise.errors import DataError

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
LONGEST_PROMPT = 200
"""Characters of a prompt that lists show."""
KEPT_ROWS = 200_000
"""Rows that are kept in memory, at most, over all files."""


class Index:
    """The tables of many files. Example: `Index().table(file)`."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._counts: dict[Path, tuple[tuple[int, int], int]] = {}
        self._tables: OrderedDict[Path, tuple[tuple[int, int], pa.Table]] = OrderedDict()

    def table(self, file: Path) -> pa.Table:
        """The light columns of a file, one row for each trajectory. Raises DataError for a file
        that cannot be read, or of an older turnwise."""
        status = file.stat()
        state = status.st_mtime_ns, status.st_size
        with self._lock:
            known = self._tables.get(file)
            if known is None or known[0] != state:
                self._tables[file] = state, _shortened(read(file, LIGHT))
            self._tables.move_to_end(file)
            rows = sum(table.num_rows for _, table in self._tables.values())
            while rows > KEPT_ROWS and len(self._tables) > 1:
                rows -= self._tables.popitem(last=False)[1][1].num_rows
            return self._tables[file][1]

    def count(self, file: Path) -> int:
        """Trajectories in a file. Raises DataError for one that cannot be read."""
        status = file.stat()
        state = status.st_mtime_ns, status.st_size
        known = self._counts.get(file)
        if known is None or known[0] != state:
            try:
                known = state, pq.read_metadata(file).num_rows
            except (pa.ArrowInvalid, OSError) as error:
                raise DataError(f"{file} cannot be read: {error}") from error
            self._counts[file] = known
        return known[1]


def read(file: Path, columns: tuple[str, ...]) -> pa.Table:
    """Some columns of a file. Raises DataError for a damaged one, and one that lacks columns."""
    try:
        there = set(pq.read_schema(file).names)
        lacking = [name for name in columns if name not in there]
        if not lacking:
            return pq.read_table(file, columns=list(columns))
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"{file} cannot be read: {error}") from error
    raise DataError(
        f"{file} was written by an earlier version of turnwise: it has no {lacking[0]!r}; look at "
        "it with that version"
    )


def read_row(file: Path, number: int) -> dict[str, Any]:
    """A whole trajectory; of the file only the group of rows that it lies in is read. Raises
    DataError as `read` does, and where there is no such row."""
    read_schema_of(file)
    try:
        parquet = pq.ParquetFile(file)
        first = 0
        for group in range(parquet.num_row_groups):
            rows = parquet.metadata.row_group(group).num_rows
            if 0 <= number - first < rows:
                table = parquet.read_row_group(group).slice(number - first, 1)
                row: dict[str, Any] = table.to_pylist()[0]
                return row
            first += rows
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"{file} cannot be read: {error}") from error
    raise DataError(f"{file.stem} has no trajectory {number}: it has {first}")


def read_schema_of(file: Path) -> None:
    """Raise DataError for a file that no dashboard of this version can read."""
    read_columns = (*LIGHT, "ids", "source", "advantage", "trained_logprob")
    try:
        there = set(pq.read_schema(file).names)
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"{file} cannot be read: {error}") from error
    for name in read_columns:
        if name not in there:
            raise DataError(
                f"{file} was written by an earlier version of turnwise: it has no {name!r}; look "
                "at it with that version"
            )


def lengths(file: Path) -> list[int]:
    """Tokens of each trajectory of a file."""
    return [int(one) for one in pc.list_value_length(read(file, ("turn",))["turn"]).to_pylist()]


def rows_with(file: Path, text: str) -> list[bool]:
    """Whether each trajectory of a file has the text anywhere in what was said, case aside."""
    found: Any = None
    for column in read(file, SEARCHED).columns:
        has = pc.fill_null(pc.match_substring(column, text, ignore_case=True), False)
        found = has if found is None else pc.or_(found, has)
    return [bool(one) for one in found.to_pylist()]


def rows_calling(file: Path, tool: str) -> list[bool]:
    """Whether each trajectory of a file has a call of a tool of that name."""
    pattern = f'"name": "{tool}"'
    has = pc.match_substring(read(file, ("actions",))["actions"], pattern)
    return [bool(one) for one in has.to_pylist()]


def rows_with_problem(file: Path, text: str) -> list[bool]:
    """Whether each trajectory of a file has a malformed turn or a problem that says the text."""
    table = read(file, ("problem", "actions"))
    problem = pc.match_substring(table["problem"], text, ignore_case=True)
    pattern = f'"error": "[^"]*{_literal(text)}'
    error = pc.match_substring_regex(table["actions"], pattern, ignore_case=True)
    either = pc.or_(pc.fill_null(problem, False), pc.fill_null(error, False))
    return [bool(one) for one in either.to_pylist()]


def in_order(files: list[Path]) -> list[Path]:
    """Files of trajectories, the newest step first, then evaluations and others."""

    def place(file: Path) -> tuple[int, int, str]:
        kind, step = file_kind(file.stem)
        return {"step": 0, "evaluation": 1, "other": 2}[kind], -(step or 0), file.stem

    return sorted(files, key=place)


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
