"""The tables of a SQLite file as questions need them: what columns hold, keys, and links.

A key is what names a row: a declared one, or a column in which no value is there twice. A link is a
declared foreign key of one column.
"""

import re
import sqlite3
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from turnwise.errors import DataError, ToolError
from turnwise_environments.sql.questions import tables_in
from turnwise_environments.tools.sql import DatabaseFile, open_file, quoted

MOST_ROWS = 1000
"""Rows from which on a table is asked about as often as any larger one."""
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


@dataclass(frozen=True)
class Column:
    """Example: Column("unitPrice", "unit price", "real", distinct=70, filled=80, most=3)."""

    name: str
    words: str
    """The name in words, or as it is where two columns have the same words."""
    kind: str
    """"text", "integer" or "real"; "" without values, and for blobs alone."""
    distinct: int
    filled: int
    """Rows that have a value."""
    most: int
    """Rows that have the most frequent value."""


@dataclass(frozen=True)
class Link:
    """A column whose values are those of another table's column."""

    column: Column
    parent: str
    target: str


@dataclass(frozen=True)
class Table:
    """A table or view with rows."""

    name: str
    rows: int
    columns: tuple[Column, ...]
    keys: tuple[tuple[Column, ...], ...]
    """Columns that name a row together, each of integers or text."""
    links: tuple[Link, ...]

    @cached_property
    def known(self) -> tuple[Column, ...]:
        """Columns that have values to ask about."""
        return tuple(column for column in self.columns if column.kind)

    @cached_property
    def groups(self) -> tuple[Column, ...]:
        """Columns that have the same value in several rows."""
        often = (one for one in self.known if 1 < one.distinct <= one.filled / 2)
        return tuple(one for one in often if one.kind != "real")

    @cached_property
    def measures(self) -> tuple[Column, ...]:
        """Columns of numbers that can be compared: neither keys nor links."""
        names = {one.name for key in self.keys for one in key if one.words.split()[-1] == "id"}
        names |= {link.column.name for link in self.links}
        numbers = (one for one in self.known if one.kind != "text" and one.distinct > 4)
        return tuple(one for one in numbers if one.name not in names)


def in_words(name: str) -> str:
    """A name as one says it.

    >>> in_words("unitPrice"), in_words("customer_id"), in_words("_")
    ('unit price', 'customer id', '_')
    """
    return " ".join(_HUMP.sub(" ", name).replace("_", " ").split()).lower() or name


def read_tables(database: DatabaseFile, path: Path) -> dict[str, Table]:
    """The tables of a file that have rows and columns to ask about, by name; those that take too
    long to be read, as views may, are left out. Raises DataError where none is left."""
    connection = open_file(path)
    found = {}
    try:
        for name, columns in tables_in(connection).items():
            with suppress(ToolError):
                found[name] = _read_table(database, connection, name, columns)
    except sqlite3.Error as error:
        raise DataError(f"{path}: SQLite cannot read it: {error}") from None
    finally:
        connection.close()
    found = {name: table for name, table in found.items() if table.rows > 1 and table.known}
    if not found:
        raise DataError(f"{path}: none of its tables has two rows: there is nothing to ask about")
    return found


def _read_table(
    database: DatabaseFile, connection: sqlite3.Connection, name: str, names: Sequence[str]
) -> Table:
    ((rows,),) = database.rows(f"SELECT count(*) FROM {quoted(name)}")
    words = Counter(map(in_words, names))
    columns = {
        one: _read_column(database, name, one, in_words(one) if words[in_words(one)] == 1 else one)
        for one in names
    }
    info = connection.execute(f"PRAGMA table_xinfo({quoted(name)})").fetchall()
    declared = tuple(columns[one] for _, one, *_, place, _ in info if place and one in columns)
    singles = [(one,) for one in columns.values() if 1 < one.distinct == one.filled]
    keys = [*singles, *([declared] if len(declared) > 1 else [])]
    exact = (key for key in keys if all(one.kind in ("integer", "text") for one in key))
    links = tuple(_links(connection, name, columns))
    return Table(name, rows, tuple(columns.values()), tuple(exact), links)


def _read_column(database: DatabaseFile, table: str, name: str, words: str) -> Column:
    source = f"FROM {quoted(table)} WHERE {quoted(name)} IS NOT NULL"
    groups = f"SELECT count(*) AS n {source} GROUP BY {quoted(name)}"
    ((distinct, filled, most),) = database.rows(f"SELECT count(*), sum(n), max(n) FROM ({groups})")
    kinds = {kind for (kind,) in database.rows(f"SELECT DISTINCT typeof({quoted(name)}) {source}")}
    return Column(name, words, _kind(kinds), distinct, filled or 0, most or 0)


def _kind(kinds: set[str]) -> str:
    """The kind of a column with values of these; what is mixed with text is only equal or not."""
    if kinds <= {"integer", "real"}:
        return "real" if "real" in kinds else "".join(kinds)
    return "text" if kinds != {"blob"} else ""


def _links(connection: sqlite3.Connection, name: str, columns: dict[str, Column]) -> Any:
    rows = connection.execute(f"PRAGMA foreign_key_list({quoted(name)})").fetchall()
    parts = Counter(number for number, *_ in rows)
    tables = {table.casefold(): table for table in tables_in(connection)}
    for number, _, parent, source, target, *_ in rows:
        column = next((one for one in columns.values() if one.name == source), None)
        named = tables.get(parent.casefold())
        if parts[number] > 1 or column is None or named is None:
            continue
        if target is None:
            info = connection.execute(f"PRAGMA table_info({quoted(named)})").fetchall()
            target = next((one for _, one, *_, place in info if place), None)
        if target is not None:
            yield Link(column, named, target)
