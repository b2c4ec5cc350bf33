"""A SQL tool: tables in SQLite, in memory, for one episode.

Put one in an environment and hand its `run` on as a tool:

    async def reset(self, task, seed):
        self.database = Database(tables)
    @tool
    async def sql(self, statement: str) -> str:
        \"""Run one SQL statement.\"""
        return self.database.run(statement)

A statement can reach the tables and nothing else: no files, no other database, no settings, no
extensions. It is bounded in steps and in the size of values, not in seconds, so that it ends the
same way everywhere. Functions that differ from run to run are refused, but for the clock (`now`).
"""

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from turnwise.errors import DataError, ToolError

MAX_ROWS = 20
"""Rows of a result that are shown, at most."""
MAX_STEPS = 500_000
"""Steps of SQLite's machine that one statement may take: some hundredths of a second."""
MAX_STEPS_A_PAGE = 40_000
"""More steps for each page of a file: some looks at each of its rows."""
MAX_VALUE_BYTES = 20_000
MAX_STATEMENT_CHARACTERS = 5_000
MAX_PAGES = 1024
"""Pages of 4 KiB each that the tables may fill."""
MAX_COLUMNS = 200
"""Columns of a table or a result; those that are worked out when they are read (`AS`) fill no
page."""
MAX_RESULT_BYTES = 1 << 20
"""Bytes of the rows that are looked at for an answer to the agent."""
MAX_SHOWN_CHARACTERS = 20_000
MAX_STATE_BYTES = 16 << 20
"""Bytes of all that is in the tables, with `CELL_BYTES` for each value."""
CELL_BYTES = 16
_GENERATED = (2, 3)
"""Kinds that `PRAGMA table_xinfo` gives to generated columns."""

REFUSED = {
    sqlite3.SQLITE_ATTACH: "other databases are not here",
    sqlite3.SQLITE_DETACH: "other databases are not here",
    sqlite3.SQLITE_PRAGMA: "settings (PRAGMA) are not available",
    sqlite3.SQLITE_TRANSACTION: "transactions are not available: a statement is one by itself",
    sqlite3.SQLITE_SAVEPOINT: "transactions are not available: a statement is one by itself",
    sqlite3.SQLITE_CREATE_VTABLE: "virtual tables are not available",
    sqlite3.SQLITE_CREATE_TEMP_TABLE: "temporary tables are not available",
    sqlite3.SQLITE_CREATE_TEMP_VIEW: "temporary views are not available",
    sqlite3.SQLITE_CREATE_TEMP_TRIGGER: "temporary triggers are not available",
}
REFUSED_FUNCTIONS = frozenset(
    {"changes", "last_insert_rowid", "load_extension", "random", "randomblob", "total_changes"}
)


class _Connection(sqlite3.Connection):
    """Is closed with the episode that lets go of it, which Python 3.13 would warn of."""

    def __del__(self) -> None:
        self.close()


_connect = partial(
    sqlite3.connect,
    isolation_level=None,
    check_same_thread=False,
    cached_statements=0,
    factory=_Connection,
)


@dataclass(frozen=True)
class Table:
    """Example: Table("staff", (("name", "TEXT"), ("age", "INTEGER")), (("ada", 41),))."""

    name: str
    columns: tuple[tuple[str, str], ...]
    """Each one's name and type."""
    rows: tuple[tuple[Any, ...], ...]

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> "Table":
        columns = tuple((str(name), str(kind)) for name, kind in plain["columns"])
        return cls(plain["name"], columns, tuple(tuple(row) for row in plain["rows"]))

    def plain(self) -> dict[str, Any]:
        rows = [list(row) for row in self.rows]
        return {"name": self.name, "columns": [list(one) for one in self.columns], "rows": rows}


class Database:
    """Some tables, and statements on them. Example: Database([Table(...)]).run("SELECT 1")."""

    _steps = MAX_STEPS

    def __init__(self, tables: Sequence[Table] = ()) -> None:
        """Raises ValueError for tables that SQLite does not take."""
        self.written = 0
        """Number of INSERT, UPDATE and DELETE run, whether they changed something or not."""
        self._why = ""
        self._connection = _connect(":memory:")
        # Before there is anything: what is too large for a row could not be read later.
        self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
        try:
            for table in tables:
                _create(self._connection, table)
        except (sqlite3.Error, OverflowError) as error:
            raise ValueError(f"table {table.name!r}: {error}") from None
        if tables:
            # So that it is kept as a restored one is: their dumps are the same bit for bit.
            self._connection.deserialize(self._connection.serialize())
        self._lock_up()

    def run(self, statement: str) -> str:
        """Run one statement; gives the names of the columns and the first MAX_ROWS rows, or how
        many rows were changed. Raises ToolError, with SQLite's words, for what does not work."""
        cursor = self._execute(statement)
        rows = self._fetch(cursor, MAX_ROWS + 1)
        named = cursor.description
        columns = None if named is None else [name for name, *_ in named]
        return _result_text(columns, rows, cursor.rowcount)

    def rows(self, statement: str) -> list[list[Any]]:
        """All rows of a result, for makers of tasks. Raises ToolError as `run` does."""
        return [list(row) for row in self._fetch(self._execute(statement), -1)]

    def state(self) -> dict[str, Any]:
        """The content of the tables, whatever the order of the rows. Tables that are too large to
        be read, or have columns that are worked out then, are a state that no other one equals."""
        names = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
        self._connection.set_progress_handler(None, 0)
        found, left = {}, MAX_STATE_BYTES
        for (name,) in self._connection.execute(names).fetchall():
            if self._works_out_columns(name):
                return {"": f"{name} has columns that are worked out"}  # no table has this name
            cursor = self._connection.execute(f"SELECT * FROM {quoted(name)}")
            rows = []
            for row in cursor:
                left -= _weight(row)
                if left < 0:
                    return {"": f"the tables hold more than {MAX_STATE_BYTES} bytes"}
                rows.append([_as_plain(value) for value in row])
            columns = [column for column, *_ in cursor.description]
            found[name] = {"columns": columns, "rows": sorted(rows, key=repr)}
        return found

    def dump(self) -> bytes:
        """The complete database, for `restored`. There must have been a table."""
        self._connection.set_authorizer(None)  # it asks for settings
        dump = self._connection.serialize()
        self._lock_up()
        return dump

    @classmethod
    def restored(cls, dump: bytes, written: int) -> "Database":
        database = cls()
        database._connection.set_authorizer(None)
        database._connection.deserialize(dump)
        database._lock_up()
        database.written = written
        return database

    def close(self) -> None:
        """Release it. Idempotent."""
        self._connection.close()

    def _works_out_columns(self, table: str) -> bool:
        self._connection.set_authorizer(None)  # it asks for what is refused to the agent
        found = self._connection.execute(f"PRAGMA table_xinfo({quoted(table)})").fetchall()
        self._connection.set_authorizer(self._authorize)
        return any(kind in _GENERATED for *_, kind in found)

    def _lock_up(self) -> None:
        connection = self._connection
        connection.set_authorizer(None)
        connection.text_factory = lambda text: text.decode(errors="replace")
        connection.execute(f"PRAGMA max_page_count = {MAX_PAGES}")
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
        connection.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, MAX_STATEMENT_CHARACTERS)
        connection.setlimit(sqlite3.SQLITE_LIMIT_COLUMN, MAX_COLUMNS)
        connection.set_authorizer(self._authorize)

    def _authorize(
        self, action: int, first: str | None, second: str | None, *places: str | None
    ) -> int:
        del first, places
        if action in REFUSED:
            self._why = REFUSED[action]
            return sqlite3.SQLITE_DENY
        if action == sqlite3.SQLITE_FUNCTION and str(second).lower() in REFUSED_FUNCTIONS:
            self._why = f"the function {second} is not available"
            return sqlite3.SQLITE_DENY
        return sqlite3.SQLITE_OK

    def _execute(self, statement: str) -> sqlite3.Cursor:
        _check_text(statement)
        self._why = ""
        self._connection.set_progress_handler(lambda: 1, self._steps)
        try:
            return self._connection.execute(statement)
        except (sqlite3.Error, sqlite3.Warning) as error:
            raise ToolError(self._explained(error)) from None

    def _fetch(self, cursor: sqlite3.Cursor, most: int) -> list[tuple[Any, ...]]:
        """So many rows, or all for -1; the statement is over then."""
        try:
            rows = cursor.fetchall() if most < 0 else _first(cursor, most)
        except sqlite3.Error as error:
            raise ToolError(self._explained(error)) from None
        finally:
            self.written += cursor.rowcount >= 0
            cursor.close()
        return rows

    def _explained(self, error: Exception) -> str:
        if isinstance(error, sqlite3.OperationalError) and str(error) == "interrupted":
            return "the statement takes too long"
        return self._why or str(error)


class DatabaseFile(Database):
    """The tables of a file of SQLite's, which are read where they are and cannot be changed.
    Example: DatabaseFile(Path("shop.sqlite")).run("SELECT count(*) FROM customers")."""

    def __init__(self, path: Path, cache_kib: int = 2048) -> None:
        """Keep at most so much of the file in memory, in KiB. Raises DataError as `open_file`
        does."""
        self.written, self._why = 0, ""
        self._connection = open_file(path)
        self._connection.execute(f"PRAGMA cache_size = -{cache_kib}")
        (pages,) = self._connection.execute("PRAGMA page_count").fetchone()
        self._steps = min(MAX_STEPS + MAX_STEPS_A_PAGE * pages, 2**31 - 1)
        self._lock_up()

    def state(self) -> dict[str, Any]:
        """Nothing, as it is always the same."""
        return {}

    def dump(self) -> bytes:
        return b""


def open_file(path: Path) -> sqlite3.Connection:
    """A connection that reads a database's file and locks nothing. Raises DataError for a file that
    is missing, is none of SQLite's, or has changes beside it that are not in it yet."""
    if not path.is_file():
        raise DataError(f"{path}: there is no such file")
    beside = path.with_name(f"{path.name}-wal")
    if beside.is_file() and beside.stat().st_size:
        raise DataError(
            f"{path}: {beside.name} has changes that are not in it yet: close what writes to it"
        )
    connection = _connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.Error as error:
        raise DataError(f"{path}: SQLite cannot read it: {error}") from None
    return connection


def _first(cursor: sqlite3.Cursor, most: int) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    left = MAX_RESULT_BYTES
    while len(rows) < most and (row := cursor.fetchone()) is not None:
        left -= _weight(row)
        if left < 0:
            raise ToolError(f"the result is more than {MAX_RESULT_BYTES} bytes: ask for less")
        rows.append(row)
    return rows


def _weight(row: Sequence[Any]) -> int:
    return sum(CELL_BYTES + (len(value) if isinstance(value, str | bytes) else 0) for value in row)


def _check_text(statement: str) -> None:
    odd = "\0" in statement or any("\ud800" <= one <= "\udfff" for one in statement)
    if odd or not statement.strip():
        raise ToolError("the statement is empty, or has a character that no statement has")


def _result_text(columns: Sequence[str] | None, rows: Sequence[Sequence[Any]], changed: int) -> str:
    """The text that the agent reads: a result with MAX_ROWS of its rows; without one (`columns` is
    None) how many rows were changed, if that is a number from 0 on.

    >>> _result_text(["age"], [[41]], -1), _result_text(None, [], 2)
    ('age\\n41', '2 rows changed')
    """
    if columns is None:
        return "done" if changed < 0 else f"{changed} rows changed"
    lines = [" | ".join(columns), *(" | ".join(map(shown, row)) for row in rows[:MAX_ROWS])]
    if not rows:
        lines.append("(no rows)")
    if len(rows) > MAX_ROWS:
        lines.append(f"(more rows: only {MAX_ROWS} are shown)")
    text = "\n".join(lines)
    if len(text) > MAX_SHOWN_CHARACTERS:
        note = f"(more: only {MAX_SHOWN_CHARACTERS} characters are shown)"
        return f"{text[:MAX_SHOWN_CHARACTERS]}\n{note}"
    return text


def quoted(name: str) -> str:
    """A name as SQL has it, whatever is in it.

    >>> quoted('a "b"')
    '"a ""b\"""'
    """
    return '"' + name.replace('"', '""') + '"'


def literal(value: Any) -> str:
    """A value as SQL has it.

    >>> literal("it's"), literal(3), literal(None)
    ("'it''s'", '3', 'NULL')
    """
    if value is None:
        return "NULL"
    return (
        str(value) if isinstance(value, int | float) else "'" + str(value).replace("'", "''") + "'"
    )


def shown(value: Any) -> str:
    """A value as the agent reads it.

    >>> shown(None), shown(2.0), shown(b"ab")
    ('NULL', '2', "x'6162'")
    """
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        return f"x'{value.hex()}'"
    if isinstance(value, float):
        return f"{value:.10g}"
    return str(value)


def _create(connection: sqlite3.Connection, table: Table) -> None:
    columns = ", ".join(f"{quoted(name)} {kind}" for name, kind in table.columns)
    connection.execute(f"CREATE TABLE {quoted(table.name)} ({columns})")
    places = ", ".join("?" * len(table.columns))
    connection.executemany(f"INSERT INTO {quoted(table.name)} VALUES ({places})", table.rows)


def _as_plain(value: Any) -> Any:
    """A value of a state: bytes as text, and whole numbers alike, whatever the column's type."""
    if isinstance(value, bytes):
        return shown(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value
