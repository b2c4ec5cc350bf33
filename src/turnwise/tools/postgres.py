"""The SQL tool on a Postgres server: a database of its own for each episode; needs the extra
`postgres`.

    server = PostgresServer("postgresql://postgres:secret@localhost/postgres")  # the prototype's
    database = server.database(tables)                                  # the episode's
    database.run("SELECT 1")

The interface is that of `Database` (`sql.py`). A statement has a connection of its own, as a role
that has rights in this one database alone, so no setting outlives it. Its first words decide
whether it is run, and functions that differ from run to run, wait, or reach the server are refused,
but for the clock and for sequences (`postgres_statements.py`). It is bounded in seconds. A server
that is gone, or does not answer, is infrastructure. A dump is the tables and the statements:
restoring runs them again, and reads the clock again. Not here: the server, which should hold
nothing else; a bound on memory: a value may take 1 GB, there and here, until its statement is over.
"""

import contextlib
import itertools
import json
import secrets
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from turnwise.errors import ConfigError, InfrastructureError, MissingExtraError
from turnwise.tools.postgres_connection import (
    Answer,
    Connection,
    CutOffError,
    RefusedError,
    address,
)
from turnwise.tools.postgres_statements import CHANGES, SET_UP, check_statement
from turnwise.tools.sql import MAX_ROWS, MAX_VALUE_BYTES, Table, as_plain, quoted, result_text

STATEMENT_SECONDS = 5.0
MAX_BYTES = 16 * 2**20
"""The most bytes of tables and indexes, and of all values as text: uncompressed."""
READING_SECONDS = 10.0
"""The time for each statement that reads what an agent left."""
MAX_TEMPORARY_KILOBYTES = 64 * 1024
"""Space on disk for one statement's sorting and joining."""
OLDEST = 13

SIZE = """SELECT coalesce(sum(pg_table_size(oid)), 0)::bigint
FROM pg_class WHERE relnamespace = 'public'::regnamespace"""
"""The bytes of tables and indexes as stored, with remains of failed statements."""
WROTE = "SELECT pg_current_xact_id_if_assigned() IS NOT NULL"
COLUMNS = """SELECT attname, atttypid = 'bytea'::regtype FROM pg_attribute
WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped"""
TABLES = """SELECT relname FROM pg_class
WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') ORDER BY relname"""


class PostgresServer:
    """A server, on which each episode gets a database; the prototype's, shared by all episodes.

    What a program that was killed left there is dropped by the next one.
    """

    def __init__(self, url: str, seconds: float = STATEMENT_SECONDS) -> None:
        """`url` is a connection string, as libpq has it, of a superuser; `seconds` are for one
        statement of the agent. Tries out that episodes can have databases.

        Raises ConfigError where that does not work, MissingExtraError without psycopg.
        """
        if seconds <= 0:
            raise ConfigError("postgres: seconds is above 0")
        try:
            import psycopg  # noqa: F401
        except ModuleNotFoundError:
            raise MissingExtraError("psycopg", "postgres") from None
        self.seconds, self._address = seconds, address(url)
        self._run = f"turnwise_{secrets.token_hex(8)}"
        self._template = f"{self._run}_template"
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        try:
            self._keepers = [self._connect(application_name=self._run)]
            weakref.finalize(self, _drop_run, self._address, self._run, self._keepers)
            self._check()
            _sweep(self._keepers[0])
            self._make_template()
            self._try_out()
        except (InfrastructureError, RefusedError) as error:
            raise ConfigError(f"postgres: {error}") from None

    def database(self, tables: Sequence[Table] = ()) -> "PostgresDatabase":
        """A new database, made with its first statement."""
        return PostgresDatabase(self, tables)

    def restored(self, dump: bytes, written: int) -> "PostgresDatabase":
        """A database as it was when `dump` was taken of it."""
        found = json.loads(dump)
        database = PostgresDatabase(self, [Table.of(plain) for plain in found["tables"]])
        database.log, database.written = found["log"], written
        return database

    def create(self) -> tuple[str, str]:
        """An empty database and a role of its own, both of this name, and the role's password."""
        name, password = f"{self._run}_{next(self._numbers)}", secrets.token_hex(16)
        with self._lock:
            self._keep()
        with self.administering() as connection:
            connection.do(
                f"CREATE ROLE {name} LOGIN PASSWORD '{password}';"
                f"ALTER ROLE {name} SET lc_messages = 'C';"
                f"ALTER ROLE {name} SET temp_file_limit = {MAX_TEMPORARY_KILOBYTES}"
            )
            connection.do(f"CREATE DATABASE {name} TEMPLATE {self._template}")
            connection.do(f"REVOKE ALL ON DATABASE {name} FROM PUBLIC")
            connection.do(f"GRANT CONNECT ON DATABASE {name} TO {name}")
        return name, password

    def drop(self, name: str) -> None:
        """Remove a database and its role, if they are there. Raises InfrastructureError."""
        with self.administering() as connection:
            _drop(connection, name)

    def opened(self, name: str, password: str) -> Connection:
        """A connection as the role of this name, whose statements have `seconds`."""
        if self._lock.acquire(blocking=False):  # else another thread looks just now
            try:
                self._keep()
            finally:
                self._lock.release()
        return self._connect(
            {"statement_timeout": f"{max(1, round(1000 * self.seconds))}"},
            user=name,
            password=password,
            dbname=name,
        )

    @contextlib.contextmanager
    def administering(self, name: str | None = None) -> Iterator[Connection]:
        """A connection as the superuser to the database of this name, or to the url's own."""
        where = {} if name is None else {"dbname": name}
        settings = {"search_path": "pg_catalog"}
        with contextlib.closing(self._connect(settings, **where)) as connection:
            try:
                yield connection
            except RefusedError as error:
                raise InfrastructureError(f"{connection.name}: {error}") from None

    def _connect(self, settings: Mapping[str, str] = {}, **where: str) -> Connection:
        return Connection({**self._address, **where}, settings)

    def _check(self) -> None:
        query = """SELECT rolsuper, current_setting('server_version_num')::int / 10000
        FROM pg_roles WHERE rolname = current_user"""
        ((powerful, version),) = self._keepers[0].ask(query).rows
        if powerful != "true":
            raise RefusedError("url must be of a superuser, who can make databases and roles")
        if version < OLDEST:
            raise RefusedError(f"the server is Postgres {version}: it takes {OLDEST} or later")

    def _make_template(self) -> None:
        coded = "TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C'"
        # Under its name only when it is whole: nobody has an episode with a half of it.
        begun = f"{self._run}_begun"
        with self.administering() as connection:
            _drop(connection, begun)
            connection.do(f"CREATE DATABASE {begun} {coded}")
        with self.administering(begun) as connection:
            connection.do(SET_UP)
        with self.administering() as connection:
            connection.do(f"ALTER DATABASE {begun} RENAME TO {self._template}")

    def _try_out(self) -> None:
        name, password = self.create()
        try:
            self.opened(name, password).close()
        except InfrastructureError as error:
            raise RefusedError(
                f"roles that are made have to log in by password (pg_hba.conf): {error}"
            ) from None
        finally:
            self.drop(name)

    def _keep(self) -> None:
        """The connection by whose name others see that this program is alive; again, after it was
        lost. In between a program that began may have dropped what is here, the template too."""
        try:
            self._keepers[0].ask("SELECT 1")
        except InfrastructureError:
            self._keepers[0].close()
            self._keepers[0] = self._connect(application_name=self._run)
            if self._template not in _own(self._keepers[0], self._run):
                self._make_template()


class PostgresDatabase:
    """Some tables, and statements on them; made by a `PostgresServer`. Blocks: call it in a thread.

    Every method but `dump` raises InfrastructureError where the server does not do its part.
    """

    def __init__(self, server: PostgresServer, tables: Sequence[Table]) -> None:
        self.written = 0
        """How many INSERT, UPDATE, DELETE and MERGE were run, whether they changed something or
        not, and queries that wrote."""
        self.log: list[list[Any]] = []
        """Each statement that came to its end, and whether it did what it should."""
        self._server, self._tables = server, list(tables)
        self._place: tuple[str, str] | None = None
        self._closed = False
        self._lock = threading.Lock()

    def run(self, statement: str) -> str:
        """Run one statement; gives the names of the columns and the first MAX_ROWS rows, or how
        many rows were changed. Raises ToolError, with Postgres's words, for what does not work;
        ValueError, with the first statement, for tables that Postgres does not take."""
        answer = self._logged(statement, MAX_ROWS + 1)
        return result_text(answer.columns, answer.rows, answer.changed)

    def rows(self, statement: str) -> list[list[Any]]:
        """All rows of a result, for makers of tasks. Raises ToolError as `run` does."""
        return self._logged(statement, -1).rows

    def state(self) -> dict[str, Any]:
        """The content of the tables: name -> columns and rows, whatever the order of the rows.
        Tables that an agent made too large to be read are a state that no other one equals."""
        with self._lock, self._server.administering(self._made()[0]) as connection:
            connection.ask(f"SET statement_timeout = {round(1000 * READING_SECONDS)}")
            try:
                _bound(connection)
                return {name: _content(connection, name) for (name,) in connection.ask(TABLES).rows}
            except RefusedError as error:
                return {"": str(error)}  # no table has this name

    def dump(self) -> bytes:
        """The tables as they were in the beginning and what was run, for `restored`."""
        plain = [table.plain() for table in self._tables]
        return json.dumps({"tables": plain, "log": self.log}).encode()

    def close(self) -> None:
        """Drop it from the server, if that is there. Idempotent."""
        with self._lock:
            self._closed = True
            self._drop()

    def _logged(self, statement: str, most: int) -> Answer:
        check_statement(statement)
        with self._lock:
            place = self._made()
            try:
                answer = self._run(place, statement, most)
            except CutOffError:
                # Where it was cut off may depend on the clock: nothing of it stays, not even in a
                # sequence, when the database is made again with the next statement.
                self._drop()
                raise
            except RefusedError:
                self.log.append([statement, False])
                raise
            self.log.append([statement, True])
            self.written += answer.wrote
            return answer

    def _made(self) -> tuple[str, str]:
        """Name and password of the database, as the log has it."""
        if self._closed:
            raise RuntimeError("the database is closed")
        if self._place is None:
            self._place = self._server.create()
            try:
                self._load(self._place)
                self._repeat(self._place)
            except BaseException:
                self._drop()
                raise
        return self._place

    def _load(self, place: tuple[str, str]) -> None:
        with contextlib.closing(self._server.opened(*place)) as connection:
            connection.ask("BEGIN")
            for table in self._tables:
                try:
                    _create(connection, table)
                except RefusedError as error:
                    raise ValueError(f"table {table.name!r}: {error}") from None
            connection.ask("COMMIT")

    def _repeat(self, place: tuple[str, str]) -> None:
        for statement, expected in self.log:
            try:
                self._run(place, statement, 1)
                worked = True
            except RefusedError:
                worked = False
            if worked != expected:
                raise InfrastructureError(f"postgres: went another way than before: {statement}")

    def _run(self, place: tuple[str, str], statement: str, most: int) -> Answer:
        with contextlib.closing(self._server.opened(*place)) as connection:
            connection.ask("BEGIN")
            ((before,),) = connection.ask(SIZE).rows
            try:
                answer = connection.ask(statement, seconds=self._server.seconds, most=most)
                _check_values(answer)
                ((wrote,),) = connection.ask(WROTE).rows
                if wrote == "true":
                    _bound(connection)
                connection.ask("COMMIT")
            except RefusedError as error:
                connection.ask("ROLLBACK")
                if connection.ask(SIZE).rows[0][0] > before:
                    # The rows that it had written are gone, and the room that they took is not.
                    raise CutOffError(str(error)) from None
                raise
        word = answer.tag.partition(" ")[0]
        answer.wrote = word in CHANGES or (answer.columns is not None and wrote == "true")
        answer.changed = int(answer.tag.split()[-1]) if word in CHANGES else -1
        return answer

    def _drop(self) -> None:
        place, self._place = self._place, None
        if place is not None:
            with contextlib.suppress(InfrastructureError):  # the next program drops what is left
                self._server.drop(place[0])


def _check_values(answer: Answer) -> None:
    values = (value for row in answer.rows for value in row)
    if any(len(str(value).encode()) > MAX_VALUE_BYTES for value in values):
        raise RefusedError(f"a value of the result has more than {MAX_VALUE_BYTES} bytes")


def _bound(connection: Connection) -> None:
    """Raises CutOffError for tables of more than MAX_BYTES, as they are stored or as they are read:
    a value that is stored in a few bytes may be long."""
    ((size,),) = connection.ask(SIZE).rows
    if size > MAX_BYTES:
        raise CutOffError("the tables are too large")
    size = 0
    for (name,) in connection.ask(TABLES).rows:
        table = f"public.{quoted(name)}"
        # The length of text and of bytes is known without decompressing them.
        sizes = [
            f"coalesce(octet_length(a.{quoted(column)}{'' if is_bytes == 'true' else '::text'}), 0)"
            for column, is_bytes in connection.ask(COLUMNS, [table]).rows
        ]
        row = "::bigint + ".join([*sizes, "0"])
        size += connection.ask(f"SELECT coalesce(sum({row}), 0) FROM {table} a").rows[0][0]
    if size > MAX_BYTES:
        raise CutOffError("the tables are too large: their values, written out")


def _content(connection: Connection, name: str) -> dict[str, Any]:
    answer = connection.ask(f"SELECT * FROM public.{quoted(name)}")
    rows = sorted(([as_plain(value) for value in row] for row in answer.rows), key=repr)
    return {"columns": answer.columns, "rows": rows}


def _create(connection: Connection, table: Table) -> None:
    columns = ", ".join(f"{quoted(name)} {kind}" for name, kind in table.columns)
    connection.ask(f"CREATE TABLE {quoted(table.name)} ({columns})")
    places = ", ".join(f"${number}" for number in range(1, len(table.columns) + 1))
    for row in table.rows:
        connection.ask(f"INSERT INTO {quoted(table.name)} VALUES ({places})", row)


def _sweep(connection: Connection) -> None:
    """Drop what programs left that are not there any more."""
    running = "SELECT application_name FROM pg_stat_activity"
    # In this order: a program that begins in between is seen as alive, or has nothing yet.
    found = _own(connection, "turnwise_[0-9a-f]{16}")
    alive = {name for (name,) in connection.ask(running).rows}
    for name in found:
        if name[: len("turnwise_") + 16] not in alive:
            with contextlib.suppress(RefusedError):  # another program does the same
                _drop(connection, name)


def _drop_run(where: Mapping[str, str], run: str, keepers: Sequence[Connection]) -> None:
    """Drop all that a program made, when it ends."""
    for keeper in keepers:
        keeper.close()
    with (
        contextlib.suppress(InfrastructureError, RefusedError),
        contextlib.closing(Connection(where, {})) as connection,
    ):
        for name in _own(connection, run):
            _drop(connection, name)


def _own(connection: Connection, run: str) -> list[str]:
    """Names of databases and roles of a run, or of the runs that a pattern fits."""
    both = """SELECT datname FROM pg_database WHERE datname ~ $1
    UNION SELECT rolname FROM pg_roles WHERE rolname ~ $1"""
    return [name for (name,) in connection.ask(both, [f"^{run}_[0-9a-z]+$"]).rows]


def _drop(connection: Connection, name: str) -> None:
    """Drop the database of this name, then the role, which has rights in it."""
    connection.do(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
    connection.do(f"DROP ROLE IF EXISTS {name}")
