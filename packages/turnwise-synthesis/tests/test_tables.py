"""The method `tables`: questions about SQLite files that the environment `sql` plays."""

import json
import random
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from turnwise.api import load_recipe
from turnwise.environments.splits import shared_tasks
from turnwise.errors import DataError
from turnwise_environments.choosing import all_tasks
from turnwise_environments.measurement import NOTHING, played_all, success
from turnwise_environments.sql.environment import SqlEnvironment
from turnwise_environments.sql.questions import QuestionFile
from turnwise_environments.tools.sql import quoted
from turnwise_synthesis.heldout import HeldOut
from turnwise_synthesis.items import Item, Material, Refused
from turnwise_synthesis.settings import SynthesisConfig
from turnwise_synthesis.tables.method import Tables
from turnwise_synthesis.tables.questions import KINDS

DBBENCH = Path(__file__).parents[4] / "shared" / "data" / "dbbench" / "standard.jsonl"
ODD = "sel\"ect 'ö' %"
"""A name of everything."""


def filled(path: Path, script: str, **rows: list[tuple[Any, ...]]) -> Path:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(script)
        for table, values in rows.items():
            places = ", ".join("?" * len(values[0]))
            connection.executemany(f"INSERT INTO {quoted(table)} VALUES ({places})", values)
    return path


def shop(path: Path, count: int = 200) -> Path:
    drawn = random.Random(0)
    cities = ["Oslo", "Lima", "Bern", "Graz", "Kyiv", "Pune", "Cork"]
    customers = [
        (n, f"Name {chr(65 + n % 26)}{chr(97 + n // 26)}", drawn.choice(cities), 18 + n)
        for n in range(30)
    ]
    orders = [
        (n, drawn.randrange(30), drawn.randint(1, 90), drawn.choice([None, "gift", "late"]))
        for n in range(count)
    ]
    script = """
        CREATE TABLE customers(id INTEGER PRIMARY KEY, name TEXT, city TEXT, startAge INTEGER);
        CREATE TABLE orders(id INTEGER PRIMARY KEY, customer_id REFERENCES Customers, amount, note);
        CREATE VIEW large AS SELECT * FROM orders WHERE amount > 60;
        CREATE VIEW broken AS SELECT * FROM nowhere;
    """
    return filled(path, script, customers=customers, orders=orders)


def made(database: Path, seed: int = 0) -> Tables:
    recipe = load_recipe(
        {
            "name": "shop",
            "environment": {"name": "search"},
            "synthesis": {"method": "tables", "seed": seed},
        }
    )
    settings = recipe.find(SynthesisConfig)
    assert settings is not None
    return Tables(Material(recipe, settings), str(database))


def items_of(database: Path, attempts: int, seed: int = 0) -> list[Item]:
    method, found = made(database, seed), {}
    for attempt in range(attempts):
        try:
            item = method.propose(attempt)
        except Refused:
            continue
        found.setdefault(item.key, item)
    return list(found.values())


def environment_of(database: Path, items: list[Item], heldout_share: float = 0.5) -> SqlEnvironment:
    file = database.with_suffix(".jsonl")
    file.write_text("".join(f"{json.dumps(dict(item.data))}\n" for item in items))
    questions = QuestionFile(str(file), heldout_share, database=str(database))
    return SqlEnvironment(questions)


def solved_by_oracle(environment: SqlEnvironment) -> float:
    tasks = all_tasks(environment)
    return success(played_all(environment, tasks, [environment.oracle(one) for one in tasks]))


@pytest.mark.long
def test_each_question_is_solved_by_its_query_and_asked_once(tmp_path: Path) -> None:
    database = shop(tmp_path / "shop #1?.sqlite")
    items = items_of(database, 900)
    kinds = Counter(str(item.data["kind"]) for item in items)
    assert len(kinds) == len(KINDS)
    assert min(kinds.values()) >= 5
    assert items == items_of(database, 900)
    assert items != items_of(database, 900, seed=1)
    environment = environment_of(database, items)
    tasks = all_tasks(environment)
    assert len(tasks) == len(items)
    assert solved_by_oracle(environment) == 1
    assert success(played_all(environment, tasks, [[NOTHING]] * len(tasks))) == 0
    assert not shared_tasks(environment.tasks("train"), environment.tasks("heldout"))
    answers = Counter(str(item.data["answer"]) for item in items)
    assert answers.most_common(1)[0][1] < 0.1 * len(items)


def test_a_question_that_is_held_out_is_found(tmp_path: Path) -> None:
    database = shop(tmp_path / "shop.sqlite")
    items = items_of(database, 300)
    heldout = HeldOut(environment_of(database, items[:20], 1.0).tasks("heldout"))
    assert all(heldout.holds(dict(item.data)) for item in items[:20])
    assert not all(heldout.holds(dict(item.data)) for item in items[20:])


def rows(count: int) -> list[tuple[Any, ...]]:
    return [(f'it\'s "{n}"', n * 7 % 11, n * n) for n in range(count)]


WORKS = {
    "odd names": (
        f"CREATE TABLE {quoted(ODD)}({quoted(ODD + 'a')}, {quoted(' ')}, é)",
        ODD,
        rows(40),
    ),
    "no key": ("CREATE TABLE t(a, b, c)", "t", rows(40) * 2 + rows(50)),
    "a key of two": ("CREATE TABLE t(a, b, c, PRIMARY KEY(b, c))", "t", rows(40)),
    "equal words": ("CREATE TABLE t(aB, a_b, c)", "t", rows(40)),
    "values of all kinds": (
        "CREATE TABLE t(a, b, c)",
        "t",
        [*rows(40), (b"\xff", "x\ny", 1e999), (None, "", -0.0), (2**62, "NULL", None)],
    ),
    "missing values": ("CREATE TABLE t(a, b, c)", "t", [*rows(20), *[(None,) * 3] * 100]),
}


@pytest.mark.parametrize("name", WORKS)
def test_odd_tables_are_asked_about(tmp_path: Path, name: str) -> None:
    script, table, values = WORKS[name]
    database = filled(tmp_path / "odd.sqlite", script, **{table: values})
    items = items_of(database, 400)
    assert len(items) > 20
    assert solved_by_oracle(environment_of(database, items)) == 1


NOTHING_TO_ASK = {
    "no tables": ("", {}),
    "no rows": ("CREATE TABLE t(a, b)", {}),
    "no values": ("CREATE TABLE t(a, b)", {"t": [(None, None)] * 5}),
    "bytes": ("CREATE TABLE t(a)", {"t": [(b"1",), (b"2",)]}),
}


@pytest.mark.parametrize("name", NOTHING_TO_ASK)
def test_a_database_without_anything_to_ask_is_told(tmp_path: Path, name: str) -> None:
    script, values = NOTHING_TO_ASK[name]
    database = filled(tmp_path / "empty.sqlite", script, **values)
    with pytest.raises(DataError, match=r"empty\.sqlite: .* nothing to ask about"):
        made(database)


@pytest.mark.long
@pytest.mark.skipif(not DBBENCH.is_file(), reason="dbbench is not here")
def test_real_tables_are_asked_about(tmp_path: Path) -> None:
    path = tmp_path / "dbbench.sqlite"
    with closing(sqlite3.connect(path)) as connection, connection:
        for number, line in enumerate(DBBENCH.read_text().splitlines()[:60]):
            table = json.loads(line)["table"]
            columns = [quoted(one["name"]) for one in table["table_info"]["columns"]]
            name = quoted(f"{table['table_name']} {number}")
            connection.execute(f"CREATE TABLE {name} ({', '.join(columns)})")
            places = ", ".join("?" * len(columns))
            values = table["table_info"]["rows"]
            connection.executemany(f"INSERT INTO {name} VALUES ({places})", values)
    items = items_of(path, 600)
    assert len(items) > 100
    assert solved_by_oracle(environment_of(path, items)) == 1
