"""The SQL tool: what a statement can reach, its bounds, and what the agent is told."""

import resource
from typing import Any

import pytest

from turnwise.errors import ToolError
from turnwise_environments.tools.sql import (
    MAX_ROWS,
    MAX_STATE_BYTES,
    Database,
    Table,
    literal,
    quoted,
)

STAFF = Table("staff", (("name", "TEXT"), ("age", "INTEGER")), (("ada", 41), ("bob", None)))


@pytest.fixture
def database() -> Database:
    return Database([STAFF])


def test_results_are_text(database: Database) -> None:
    assert database.run("SELECT * FROM staff") == "name | age\nada | 41\nbob | NULL"
    assert database.run("SELECT avg(age) FROM staff") == "avg(age)\n41"
    assert database.run("SELECT name FROM staff WHERE age > 90") == "name\n(no rows)"
    assert database.run("UPDATE staff SET age = 2 WHERE name = 'bob'") == "1 rows changed"
    assert database.run("CREATE TABLE t (a)") == "done"
    assert database.written == 1
    assert database.run("INSERT INTO t VALUES (1), (2) RETURNING a") == "a\n1\n2"
    assert database.written == 2


def test_long_results_are_cut(database: Database) -> None:
    numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 90) "
    lines = database.run(numbers + "SELECT i FROM n").splitlines()
    assert len(lines) == MAX_ROWS + 2
    assert lines[-1] == f"(more rows: only {MAX_ROWS} are shown)"


BAD = {
    "": "the statement is empty",
    "SELECT 1\0": "a character that no statement has",
    "SELECT '\ud800'": "a character that no statement has",
    "SELEC 1": 'near "SELEC": syntax error',
    "SELECT 1; SELECT 2": "one statement at a time",
    "SELECT * FROM nowhere": "no such table: nowhere",
    "ATTACH 'x.db' AS x": "other databases are not here",
    "VACUUM INTO 'x.db'": "other databases are not here",
    "PRAGMA writable_schema = 1": "settings (PRAGMA) are not available",
    "BEGIN": "transactions are not available",
    "CREATE TEMP TABLE t (a)": "temporary tables are not available",
    "CREATE TEMP VIEW v AS SELECT 1": "temporary views are not available",
    "SAVEPOINT a": "transactions are not available",
    "SELECT random()": "the function random is not available",
    "SELECT load_extension('x')": "load_extension",
    "SELECT zeroblob(1000000)": "too big",
    "SELECT '" + "x" * 9000 + "'": "too",
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n": (
        "the statement takes too long"
    ),
    "CREATE TABLE big AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
    "SELECT hex(zeroblob(5000)) FROM n": "",
}


@pytest.mark.parametrize("statement", BAD)
def test_what_does_not_work_is_told_and_changes_nothing(database: Database, statement: str) -> None:
    before = database.state()
    with pytest.raises(ToolError) as error:
        database.run(statement)
    assert BAD[statement] in str(error.value)
    assert database.state() == before
    assert database.run("SELECT 1") == "1\n1"


GROWING = "ALTER TABLE big ADD COLUMN c{} AS (replace(hex(zeroblob(4900)), '00', 'ab'))"


def grown(rows: int, columns: int) -> Database:
    """Tables of some KiB that are gigabytes when they are read."""
    made = Database([STAFF])
    made.run("CREATE TABLE big (a)")
    made.run(
        f"INSERT INTO big WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n "
        f"LIMIT {rows}) SELECT i FROM n"
    )
    for number in range(columns):
        made.run(GROWING.format(number))
    return made


def test_what_columns_are_worked_out_to_is_read_within_bounds() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    database = grown(20_000, 5)
    assert list(database.state()) == [""]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 150 << 10  # KiB
    assert database.run("SELECT 1") == "1\n1"


@pytest.mark.slow
def test_tables_that_are_too_large_are_a_state_of_their_own() -> None:
    """A column without a value takes one byte there, and many when it is read."""
    columns = tuple((f"c{number}", "INTEGER") for number in range(150))
    made = Database([Table("t", columns, ())])
    made.run(
        "INSERT INTO t (c0) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n "
        "LIMIT 15000) SELECT 1 FROM n"
    )
    assert made.state() == {"": f"the tables hold more than {MAX_STATE_BYTES} bytes"}


def test_a_result_is_bounded() -> None:
    database = grown(40, 60)
    with pytest.raises(ToolError, match="more than 1048576 bytes"):
        database.run("SELECT * FROM big")
    text = database.run("SELECT c1, c2, c3, c4 FROM big LIMIT 1")
    assert text.endswith("\n(more: only 20000 characters are shown)")
    assert len(text) < 20_100


def test_a_table_has_so_many_columns(database: Database) -> None:
    columns = ", ".join(f"c{number}" for number in range(300))
    with pytest.raises(ToolError, match="too many columns"):
        database.run(f"CREATE TABLE wide ({columns})")


def test_tables_that_cannot_be_read_are_a_state_of_their_own(database: Database) -> None:
    for statement in (
        "UPDATE staff SET name = '{'",
        "ALTER TABLE staff ADD COLUMN b AS (json(name))",
    ):
        database.run(statement)
    assert database.state() == {"": "staff has columns that are worked out"}
    assert database.run("SELECT age FROM staff LIMIT 1") == "age\n41"


def test_odd_values_can_be_read_and_compared(database: Database) -> None:
    database.run("INSERT INTO staff VALUES (CAST(x'ff' AS TEXT), x'00'), (1e999, 2.0)")
    assert "\ufffd" in database.run("SELECT name FROM staff")
    assert database.state()["staff"]["rows"]


def test_the_order_of_rows_does_not_count_and_columns_do(database: Database) -> None:
    other = Database([Table("staff", STAFF.columns, STAFF.rows[::-1])])
    assert database.state() == other.state()
    other.run("ALTER TABLE staff RENAME COLUMN age TO years")
    assert database.state() != other.state()


def test_a_dump_is_the_whole_database(database: Database) -> None:
    database.run("DELETE FROM staff WHERE name = 'bob'")
    dump = database.dump()
    copy = Database.restored(dump, database.written)
    assert copy.dump() == dump
    for one in (database, copy):
        one.run("INSERT INTO staff VALUES ('eve', 3)")
    assert copy.dump() == database.dump()
    assert copy.written == database.written == 2
    with pytest.raises(ToolError, match="PRAGMA"):
        copy.run("PRAGMA page_size")
    copy.close()
    copy.close()


@pytest.mark.parametrize("value", ["it's", 'a "b"', 3, 2.5, None, "", "a`b"])
def test_quoted_names_and_values_survive(value: Any) -> None:
    name = str(value) or "x"
    table = Database([Table(name, ((name, "TEXT"),), ())])
    table.run(f"INSERT INTO {quoted(name)} VALUES ({literal(value)})")
    expected = value if value is None else str(value)
    assert table.rows(f"SELECT * FROM {quoted(name)}") == [[expected]]


def test_tables_that_are_none() -> None:
    with pytest.raises(ValueError, match="table 'a'"):
        Database([Table("a", (("x", "TEXT"), ("x", "TEXT")), ())])
