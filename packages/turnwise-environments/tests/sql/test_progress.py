"""Progress of queries: a share of what is asked for, and nothing for looks, constants and luck."""

from collections.abc import Sequence

import pytest

from environment_playing import answered, calling, judged, prototype
from turnwise.environments.base import Environment
from turnwise.types import Task
from turnwise_environments.choosing import all_tasks
from turnwise_environments.sql.environment import Wanted
from turnwise_environments.sql.tasks import make_task, outcome
from turnwise_environments.tools.sql import Table, literal

STAFF = Table(
    "staff",
    (("name", "TEXT"), ("team", "TEXT"), ("age", "INTEGER")),
    tuple(
        (name, ("red", "blue", "gold")[place % 3], 20 + place)
        for place, name in enumerate(("ada", "ben", "cleo", "dana", "eli", "finn", "gus", "hana"))
    ),
)

pytestmark = pytest.mark.long
RED = "SELECT name FROM staff WHERE team = 'red'"
"""ada, dana and gus of eight."""

made = prototype("sql", tasks={"count": 20})


def asked(statement: str) -> Task:
    cells, state = outcome([STAFF], statement)
    secret = {"statement": statement, "answer": cells, "state": state}
    return make_task("?", [STAFF], secret, {"grammar": "full"})


def gains(made: Environment, task: Task, *statements: str) -> Sequence[float]:
    calls = [calling("sql", statement=statement) for statement in statements]
    return judged(made, task, *calls, answered("?")).turn_parts["progress"]


def test_the_right_query_earns_everything_once(made: Environment) -> None:
    assert gains(made, asked(RED), "SELECT 1", RED, RED) == [0.0, 1.0, 0.0, 0.0]


def test_a_query_that_is_near_earns_a_part(made: Environment) -> None:
    near = RED + " AND age > 20"
    first, second, last = gains(made, asked(RED), near, RED)
    assert 0.0 < first < 1.0
    assert first + second == pytest.approx(1.0)
    assert last == 0.0


LOOKS = {
    "the table": ["SELECT * FROM staff"],
    "the table in order": ["SELECT * FROM staff ORDER BY age DESC"],
    "column by column": [f"SELECT {name} FROM staff" for name, _ in STAFF.columns],
    "the table with itself": ["SELECT * FROM staff a JOIN staff b ON a.name = b.name"],
    "nothing": ["SELECT name FROM staff WHERE age > 1000"],
    "no query": ["SELECT nothing FROM nowhere"],
}
GUESSES = {
    "typed": ["SELECT 'ada' UNION ALL SELECT 'dana' UNION ALL SELECT 'gus'"],
    "listed": ["SELECT name FROM staff WHERE name IN ('ada', 'dana', 'gus')"],
    "every number": [f"SELECT {number}" for number in range(20, 28)],
    "worked out": ["SELECT 10 + 10", "SELECT length('aaaaaaaaaaaaaaaaaaaa') FROM staff LIMIT 1"],
}


@pytest.mark.parametrize("name", LOOKS)
def test_a_look_at_everything_earns_nothing(made: Environment, name: str) -> None:
    assert not any(gains(made, asked(RED), *LOOKS[name]))


@pytest.mark.parametrize("name", GUESSES)
def test_a_guess_earns_less_than_a_query(made: Environment, name: str) -> None:
    names = asked(RED)
    number = asked("SELECT min(age) FROM staff WHERE team = 'red'")
    assert sum(gains(made, names, *GUESSES[name])) <= 0.2  # as the names may be in variants too
    assert sum(gains(made, number, *GUESSES[name])) == 0.0


def test_rows_of_ones_own_earn_nothing_and_are_harm(made: Environment) -> None:
    calls = [
        calling("sql", statement="INSERT INTO staff VALUES ('zoe', 'none', 20)"),
        calling("sql", statement="SELECT age FROM staff WHERE name = 'zoe'"),
    ]
    task = asked("SELECT min(age) FROM staff WHERE team = 'red'")
    parts = judged(made, task, *calls, answered("20")).turn_parts
    assert parts == {"progress": [0.0, 0.0, 0.0], "harm": [1.0, 0.0, 0.0]}


def test_a_change_undone_and_made_again_earns_once(made: Environment) -> None:
    task = next(one for one in all_tasks(made) if one.info["kind"] == "insert")
    change = made.oracle(task)[0]
    table = task.data["tables"][0]["name"]
    (row,) = [
        row
        for row in task.secret["state"][table]["rows"]
        if row not in task.data["tables"][0]["rows"]
    ]
    key = task.data["tables"][0]["columns"][0][0]
    undo = calling("sql", statement=f"DELETE FROM {table} WHERE {key} = {literal(row[0])}")
    parts = judged(made, task, change, undo, change, answered("done")).turn_parts
    assert parts == {"progress": [1.0, -1.0, 1.0, 0.0], "harm": [0.0, 1.0, 0.0, 0.0]}


def test_a_result_that_cannot_be_better_is_not_compared() -> None:
    wanted = Wanted(["ada"], floor=0.0)
    assert wanted.share("name\nada\nben", least=0.4) == 0.5
    assert wanted.share("name\nada\nben", least=0.5) == 0.0
