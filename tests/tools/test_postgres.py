"""The SQL tool on a real Postgres server: what a statement can reach, bounds, and failures."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from tests.tools.postgres_server import Running, running_server
from turnwise.errors import ConfigError, InfrastructureError, ToolError
from turnwise.tools import postgres_connection
from turnwise.tools.postgres import PostgresDatabase, PostgresServer
from turnwise.tools.postgres_connection import Connection, RefusedError, address
from turnwise.tools.sql import MAX_ROWS, Database, Table

STAFF = Table("staff", (("name", "TEXT"), ("age", "INTEGER")), (("ada", 41), ("bob", None)))
ENDLESS = "SELECT count(*) FROM pg_class a, pg_class b, pg_class c, pg_class d"
MAKING = """
import os, sys
from turnwise.tools.postgres import PostgresServer
database = PostgresServer(sys.argv[1]).database()
database.run("SELECT 1")
print("made", flush=True)
{end}
"""


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with running_server() as running:
        yield running


@pytest.fixture(scope="module")
def server(running: Running) -> PostgresServer:
    return PostgresServer(running.url())


@pytest.fixture
def database(server: PostgresServer) -> Iterator[PostgresDatabase]:
    database = server.database([STAFF])
    yield database
    database.close()


@pytest.fixture(scope="module")
def unharmed(server: PostgresServer) -> Iterator[PostgresDatabase]:
    """Whose statements change nothing: one for all of them."""
    database = server.database([STAFF])
    yield database
    database.close()


@pytest.fixture
def hasty(running: Running) -> Iterator[PostgresDatabase]:
    """Whose statements have little time."""
    database = PostgresServer(running.url(), seconds=0.5).database([STAFF])
    yield database
    database.close()


def left(running: Running) -> set[str]:
    """Databases and roles that are there."""
    both = "SELECT datname FROM pg_database UNION SELECT rolname FROM pg_roles"
    connection = Connection(address(running.url()), {})
    with contextlib.closing(connection):
        return {str(name) for (name,) in connection.ask(both).rows}


@pytest.mark.long
def test_results_are_text(database: PostgresDatabase) -> None:
    assert database.run("SELECT * FROM staff") == "name | age\nada | 41\nbob | NULL"
    assert database.run("SELECT avg(age) FROM staff") == "avg\n41"
    assert database.run("SELECT name FROM staff WHERE age > 90") == "name\n(no rows)"
    assert database.run("UPDATE staff SET age = 2 WHERE name = 'bob'") == "1 rows changed"
    assert database.run("CREATE TABLE t (a INTEGER)") == "done"
    assert database.written == 1
    assert database.run("INSERT INTO t VALUES (1), (2) RETURNING a") == "a\n1\n2"
    assert database.run("UPDATE t SET a = 3 WHERE a > 90") == "0 rows changed"
    assert database.written == 3
    assert database.run("WITH gone AS (DELETE FROM t RETURNING a) SELECT a FROM gone") == "a\n1\n2"
    assert database.run("( /* all */ SELECT 1 AS a, 2 AS a) -- of it") == "a | a\n1 | 2"
    assert database.written == 4


def test_values_of_all_types_can_be_read(database: PostgresDatabase) -> None:
    values = "'\\x00ff'::bytea, true, 'infinity'::date, '4713-01-01 BC'::date, 1e300::numeric, 0.10"
    line = database.run(f"SELECT {values}, 'NaN'::float8, ARRAY[1, 2]").splitlines()[1]
    start = "x'00ff' | true | infinity | 4713-01-01 BC | 1e+300 | 0.1 | nan | {1,2}"
    assert line == start.replace("1e+300", "1" + "0" * 300)
    assert database.rows("SELECT 9007199254740993, '9'::numeric, 2.5, NULL") == [
        [9007199254740993, 9, 2.5, None]
    ]


def test_long_results_are_cut(database: PostgresDatabase) -> None:
    assert database.run("SELECT 'it''s a TABLESAMPLE' AS \"tablesample\"").startswith(
        "tablesample\n"
    )
    lines = database.run("SELECT i FROM generate_series(1, 90) i").splitlines()
    assert len(lines) == MAX_ROWS + 2
    assert lines[-1] == f"(more rows: only {MAX_ROWS} are shown)"
    assert len(database.rows("SELECT i FROM generate_series(1, 90) i")) == 90


BAD = {
    "": "the statement is empty",
    "-- nothing": "is not available",
    "SELECT 1\0": "a character that no statement has",
    "SELECT '\ud800'": "a character that no statement has",
    "SELEC 1": "SELEC is not available; there are SELECT",
    "SELECT FROM WHERE": 'syntax error at or near "WHERE"',
    "SELECT 1; SELECT 2": "one statement at a time",
    "SELECT 1; COMMIT; DROP TABLE staff": "one statement at a time",
    "SELECT $1::int": "0 parameters",
    "SELECT * FROM nowhere": 'relation "nowhere" does not exist',
    "SELECT agee FROM staff": 'Perhaps you meant to reference the column "staff.age".',
    "INSERT INTO staff VALUES ('eve', 'old')": "invalid input syntax",
    "BEGIN": "transactions are not available",
    "SET ROLE postgres": "settings are not available",
    "/* /* */ SELECT */ SET ROLE postgres": "is not available",
    "--\rSET ROLE\n-- SELECT": "settings are not available",
    "CREATE TEMP TABLE t (a INTEGER)": "temporary tables are not available",
    "SELECT 1 INTO TEMP t": "permission denied to create temporary tables",
    "CREATE /**/ FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'": (
        "CREATE FUNCTION is not available"
    ),
    "CREATE EXTENSION dblink": "CREATE EXTENSION is not available",
    "ALTER ROLE CURRENT_USER PASSWORD 'x'": "ALTER ROLE is not available",
    "ALTER TABLE staff OWNER TO postgres": 'must be member of role "postgres"',
    "COPY staff TO PROGRAM 'id'": "COPY is not available",
    "DO $$ BEGIN END $$": "DO is not available",
    "LISTEN a": "LISTEN is not available",
    "SELECT set_config('role', 'postgres', false)": "permission denied for function set_config",
    "SELECT pg_read_file('/etc/passwd')": "permission denied for function pg_read_file",
    "SELECT lo_import('/etc/passwd')": "permission denied for function lo_import",
    "SELECT pg_sleep(60)": "permission denied for function pg_sleep",
    "SELECT pg_terminate_backend(pg_backend_pid())": "permission denied for function",
    "SELECT query_to_xml('SELECT 1', true, true, '')": "permission denied for function",
    "SELECT pg_advisory_lock(1)": "permission denied for function pg_advisory_lock",
    "SELECT pg_notify('a', 'b')": "permission denied for function pg_notify",
    "SELECT random()": "permission denied for function random",
    'SELECT pg_catalog."random"()': "permission denied for function random",
    "SELECT pg_backend_pid()": "permission denied for function pg_backend_pid",
    "SELECT * FROM staff\ntablesample system(50)": "TABLESAMPLE is not available",
    "SELECT /* ' */ * FROM staff TABLESAMPLE system(50) -- '": "TABLESAMPLE is not available",
    "SELECT E'\\'' FROM staff TABLESAMPLE system(50) WHERE name > ''": "TABLESAMPLE is not",
    "SELECT gen_random_uuid()": "permission denied for function gen_random_uuid",
    "SELECT rolpassword FROM pg_authid": "permission denied for table pg_authid",
    "CREATE TABLE pg_catalog.t (a INTEGER)": "permission denied",
    "SELECT repeat('x', 30000)": "a value of the result has more than 20000 bytes",
    "SELECT '" + "x" * 5000 + "'": "more than 5000 characters",
    "CREATE TABLE big AS SELECT md5(i::text) FROM generate_series(1, 400000) i": (
        "the tables are too large"
    ),
    "INSERT INTO staff SELECT repeat('a', 20000000)": "the tables are too large: their values",
    "CREATE TABLE big AS SELECT 1e131000::numeric FROM generate_series(1, 200)": (
        "the tables are too large: their values"
    ),
    "CREATE TABLE big AS SELECT repeat('a', 6000000) a, repeat('b', 6000000)::bytea b, "
    "ARRAY[repeat('c', 6000000)] c": "the tables are too large: their values",
    "SELECT count(*) FROM (SELECT i FROM generate_series(1, 9000000) i ORDER BY -i) a": (
        "the statement needs too much room"
    ),
}


LARGE = [one for one, told in BAD.items() if "too large" in told or "too much room" in told]
"""Those that take seconds."""


@pytest.mark.long
@pytest.mark.parametrize(
    "statement",
    [pytest.param(one, marks=pytest.mark.slow) if one in LARGE else one for one in BAD],
)
def test_what_does_not_work_is_told_and_changes_nothing(
    unharmed: PostgresDatabase, statement: str
) -> None:
    with pytest.raises(ToolError) as error:
        unharmed.run(statement)
    assert BAD[statement] in str(error.value)
    assert unharmed.state() == Database([STAFF]).state()
    assert unharmed.run("SELECT 1 AS a") == "a\n1"
    assert unharmed.written == 0


@pytest.mark.slow
def test_what_takes_too_long_leaves_nothing(hasty: PostgresDatabase) -> None:
    hasty.run("CREATE TABLE t (a SERIAL, b BIGINT)")
    start = time.monotonic()
    for endless in (ENDLESS, f"INSERT INTO t (b) {ENDLESS} UNION SELECT nextval('t_a_seq')"):
        with pytest.raises(ToolError, match="takes too long"):
            hasty.run(endless)
    assert time.monotonic() - start < 60
    assert hasty.run("INSERT INTO t (b) VALUES (7) RETURNING a") == "a\n1"


def test_the_role_itself_has_no_rights_beyond_its_database(server: PostgresServer) -> None:
    """Without the check of how a statement begins."""
    mine, other = server.create(), server.create()
    try:
        refused = {
            "SET ROLE postgres": "permission denied",
            f"SET ROLE {other[0]}": "permission denied",
            "SET SESSION AUTHORIZATION postgres": "permission denied",
            "SET session_replication_role = replica": "permission denied",
            "SET temp_file_limit = -1": "permission denied",
            "COPY pg_class TO PROGRAM 'id'": "pg_execute_server_program",
            "COPY pg_class TO '/tmp/a'": "pg_write_server_files",
            "CREATE EXTENSION file_fdw": "permission denied",
            "CREATE SCHEMA mine": "permission denied",
            "CREATE ROLE more": "permission denied",
            f"ALTER ROLE {other[0]} PASSWORD 'x'": "permission denied",
            f"DROP DATABASE {other[0]}": "must be owner",
            "CREATE DATABASE more": "permission denied",
            "ALTER SYSTEM SET jit = on": "permission denied",
        }
        connection = server.opened(*mine)
        with contextlib.closing(connection):
            for statement, why in refused.items():
                with pytest.raises(RefusedError, match=why):
                    connection.ask(statement)
            assert connection.ask("SELECT 1").rows == [[1]]
        with pytest.raises(InfrastructureError, match="permission denied for database"):
            Connection({**address_of(server), **login(mine, other[0])}, {})
    finally:
        for name, _ in (mine, other):
            server.drop(name)


def address_of(server: PostgresServer) -> dict[str, str]:
    return dict(server._address)


def login(place: tuple[str, str], database: str) -> dict[str, str]:
    return {"user": place[0], "password": place[1], "dbname": database}


@pytest.mark.long
def test_episodes_side_by_side_see_nothing_of_each_other(server: PostgresServer) -> None:
    databases = [server.database([STAFF]) for _ in range(16)]
    failed: list[Exception] = []

    def play(number: int, database: PostgresDatabase) -> None:
        try:
            database.run(f"INSERT INTO staff VALUES ('eve', {number})")
            database.run(f"CREATE TABLE own_{number} (a INTEGER)")
            assert database.rows("SELECT age FROM staff WHERE name = 'eve'") == [[number]]
            assert set(database.state()) == {"staff", f"own_{number}"}
        except (Exception, AssertionError) as error:  # noqa: BLE001 - raised below
            failed.append(error)

    threads = [threading.Thread(target=play, args=pair) for pair in enumerate(databases)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for database in databases:
        database.close()
    assert failed == []


@pytest.mark.long
def test_the_state_is_as_sqlite_has_it(database: PostgresDatabase) -> None:
    other = Database([STAFF])
    for statement in (
        "INSERT INTO staff VALUES ('Zoë', 7), ('it''s', NULL), ('', 0)",
        "UPDATE staff SET age = age * 2 WHERE age > 6",
        "CREATE TABLE more (a TEXT, b REAL)",
        "INSERT INTO more SELECT name, age / 4.0 FROM staff",
        "CREATE VIEW seen AS SELECT a FROM more",
        "DELETE FROM staff WHERE name = 'bob'",
        "ALTER TABLE staff RENAME COLUMN age TO years",
    ):
        assert database.run(statement) == other.run(statement)
        assert database.state() == other.state()
    assert database.written == other.written


def test_rows_that_are_hidden_are_in_the_state(database: PostgresDatabase) -> None:
    database.run("ALTER TABLE staff ENABLE ROW LEVEL SECURITY")
    database.run("ALTER TABLE staff FORCE ROW LEVEL SECURITY")
    assert database.run("SELECT name FROM staff") == "name\n(no rows)"
    assert len(database.state()["staff"]["rows"]) == 2


def test_tables_that_cannot_be_read_are_no_wanted_state(database: PostgresDatabase) -> None:
    """The bound does not see rows that are hidden."""
    database.run("CREATE TABLE t AS SELECT 1 FROM generate_series(1, 40)")
    database.run("ALTER TABLE t ENABLE ROW LEVEL SECURITY")
    database.run("ALTER TABLE t FORCE ROW LEVEL SECURITY")
    database.run("ALTER TABLE t ADD COLUMN a TEXT DEFAULT repeat('a', 500000)")
    assert database.state() == {"": "the tables are too large: their values, written out"}


@pytest.mark.slow
def test_what_failed_statements_leave_does_not_count(
    server: PostgresServer, database: PostgresDatabase
) -> None:
    database.run("CREATE TABLE t (a SERIAL, b INTEGER)")
    failing = "INSERT INTO t (b) SELECT 1 / (250000 - i) FROM generate_series(1, 250000) i"
    for _ in range(2):
        with pytest.raises(ToolError, match="division by zero"):
            database.run(failing)
    assert database.run("INSERT INTO t (b) VALUES (3) RETURNING a") == "a\n1"
    copy = server.restored(database.dump(), database.written)
    assert copy.run("INSERT INTO t (b) VALUES (3) RETURNING a") == "a\n2"
    copy.close()


@pytest.mark.long
def test_a_dump_is_the_whole_database(server: PostgresServer, database: PostgresDatabase) -> None:
    database.run("CREATE TABLE t (a SERIAL PRIMARY KEY, b INTEGER CHECK (b > 0))")
    database.run("INSERT INTO t (b) VALUES (1), (2)")
    with pytest.raises(ToolError):
        database.run("INSERT INTO t (b) VALUES (-1)")  # takes a number of the sequence
    database.run("DELETE FROM staff WHERE name = 'bob'")
    copy = server.restored(database.dump(), database.written)
    assert copy.dump() == database.dump()
    assert copy.state() == database.state()
    for one in (database, copy):
        assert one.run("INSERT INTO t (b) VALUES (5) RETURNING a") == "a\n4"
        with pytest.raises(ToolError, match="violates check constraint"):
            one.run("INSERT INTO t (b) VALUES (0)")
    assert copy.dump() == database.dump()
    assert copy.written == database.written == 3
    copy.close()
    copy.close()
    assert database.state()["t"]["rows"] == [[1, 1], [2, 2], [4, 5]]


def test_a_dump_that_goes_another_way_is_infrastructure(server: PostgresServer) -> None:
    database = server.restored(b'{"tables": [], "log": [["SELECT * FROM nowhere", true]]}', 0)
    with pytest.raises(InfrastructureError, match="another way than before"):
        database.run("SELECT 1")
    database.close()


@pytest.mark.parametrize(
    "table",
    [
        Table("a", (("x", "TEXT"), ("x", "TEXT")), ()),
        Table("a", (("x", "INTEGER"),), (("old",),)),
        Table("a", (("x", "NONSENSE"),), ()),
    ],
)
def test_tables_that_are_none(server: PostgresServer, table: Table) -> None:
    database = server.database([table])
    with pytest.raises(ValueError, match="table 'a'"):
        database.run("SELECT 1")
    database.close()


@pytest.mark.slow
def test_what_a_killed_program_left_is_dropped_by_the_next(running: Running) -> None:
    before = left(running)
    alive = PostgresServer(running.url())
    database = alive.database([STAFF])
    database.run("SELECT 1")
    ends = {"os.kill(os.getpid(), 9)": -signal.SIGKILL, "": 0}
    for end, status in ends.items():
        command = [sys.executable, "-c", MAKING.format(end=end), running.url()]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        assert (done.stdout, done.returncode) == ("made\n", status)
        own = {name for name in left(running) - before if not name.startswith(alive._run)}
        assert bool(own) == bool(status), "one that ends leaves nothing"
        if status:
            next_one = PostgresServer(running.url())
            assert {n for n in left(running) - before if not n.startswith(alive._run)} == {
                f"{next_one._run}_template"
            }
            del next_one
    assert database.run("SELECT name FROM staff") == "name\nada\nbob"
    database.close()
    del alive, database
    assert left(running) == before


@pytest.mark.slow
def test_a_program_whose_keeper_was_lost_goes_on(running: Running) -> None:
    keepers = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1"
    server = PostgresServer(running.url())
    database = server.database([STAFF])
    database.run("SELECT 1")
    connection = Connection(address(running.url()), {})
    with contextlib.closing(connection):
        assert connection.ask(keepers, [server._run]).rows == [["true"]]
        assert database.run("SELECT 1 AS a") == "a\n1"  # upon which it is seen again
        PostgresServer(running.url())
        assert database.run("SELECT 2 AS a") == "a\n2"
        assert connection.ask(keepers, [server._run]).rows == [["true"]]
        PostgresServer(running.url())  # drops what is there
    with pytest.raises(InfrastructureError, match="postgres at"):
        database.run("SELECT 1")
    database.close()
    later = server.database([STAFF])
    assert later.run("SELECT name FROM staff") == "name\nada\nbob"
    later.close()


WRONG = {"no connection string": "nonsense", "postgres at /nowhere": "host=/nowhere user=postgres"}


@pytest.mark.parametrize("message", WRONG)
def test_servers_that_cannot_be_used(message: str) -> None:
    pytest.importorskip("psycopg", reason="needs turnwise[postgres]")
    with pytest.raises(ConfigError, match=message):
        PostgresServer(WRONG[message])


def test_the_user_has_to_be_a_superuser_with_the_right_password(running: Running) -> None:
    with pytest.raises(ConfigError, match="password authentication failed") as error:
        PostgresServer(running.url(password="wrong"))
    assert "wrong" not in str(error.value)
    connection = Connection(address(running.url()), {})
    with contextlib.closing(connection):
        connection.do("CREATE ROLE plain LOGIN CREATEDB CREATEROLE PASSWORD 'plain'")
        with pytest.raises(ConfigError, match="must be of a superuser"):
            PostgresServer(running.url("plain", "plain"))
        connection.do("DROP ROLE plain")
    with pytest.raises(ConfigError, match="above 0"):
        PostgresServer(running.url(), seconds=0)


@pytest.mark.slow
def test_a_server_that_hangs_is_infrastructure(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        where = {"host": "127.0.0.1", "port": str(silent.getsockname()[1])}
        with pytest.raises(InfrastructureError, match=r"postgres at 127\.0\.0\.1"):
            Connection({**where, "user": "a", "connect_timeout": "2"}, {})
    monkeypatch.setattr(postgres_connection, "SERVER_SECONDS", 0.2)
    connection = Connection(address(running.url()), {})
    ((process,),) = connection.ask("SELECT pg_backend_pid()").rows
    os.kill(process, signal.SIGSTOP)
    try:
        with pytest.raises(InfrastructureError, match="no answer in time"):
            connection.ask("SELECT 1")
    finally:
        os.kill(process, signal.SIGCONT)
        connection.close()


@pytest.mark.slow
def test_a_server_that_crashes_and_one_that_is_killed() -> None:
    with running_server() as running:
        server = PostgresServer(running.url())
        database, other = server.database([STAFF]), server.database([STAFF])
        other.run("SELECT 1")
        failures: list[InfrastructureError] = []

        def wait() -> None:
            with pytest.raises(InfrastructureError, match="postgres at") as error:
                database.run(ENDLESS)
            failures.append(error.value)

        thread = threading.Thread(target=wait)
        thread.start()
        os.kill(working(running), signal.SIGKILL)  # upon which the server starts anew
        thread.join()
        assert len(failures) == 1
        database.close()
        running.wait()
        assert other.run("SELECT name FROM staff") == "name\nada\nbob"
        later = server.database([STAFF])
        assert later.run("DELETE FROM staff") == "2 rows changed"
        running.process.kill()
        running.process.wait()
        for call in (lambda: other.run("SELECT 1"), lambda: later.run("SELECT 1"), other.state):
            with pytest.raises(InfrastructureError, match="postgres at"):
                call()
        other.close()
        later.close()


def working(running: Running) -> int:
    """The process that runs ENDLESS."""
    connection = Connection(address(running.url()), {})
    with contextlib.closing(connection):
        while True:
            busy = "SELECT pid FROM pg_stat_activity WHERE state = 'active' AND query = $1"
            found = connection.ask(busy, [ENDLESS]).rows
            if found:
                return int(found[0][0])
