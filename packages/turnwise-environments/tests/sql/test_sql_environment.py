"""The SQL environment: the oracle, trivial and broken policies, and dbbench's format."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from environment_playing import answered, calling, judged, opened, reward, write
from turnwise.errors import DataError
from turnwise.types import Action, Task
from turnwise_environments.sql.environment import SqlEnvironment
from turnwise_environments.sql.requests import GRAMMARS, Request
from turnwise_environments.sql.tasks import MadeRequests, RecordFile, _task, for_sqlite, scene_of

RECORD: dict[str, Any] = {
    "description": "What is the age of Ann?",
    "add_description": "The table is people.",
    "type": ["other"],
    "label": ["41"],
    "table": {
        "table_name": "people",
        "table_info": {
            "columns": [{"name": "name", "type": "TEXT"}, {"name": "age", "type": "INT"}],
            "rows": [["Ann", "41"], ["Bob", "17"]],
        },
    },
}
CHANGE = {
    **RECORD,
    "description": "Make Bob 18.",
    "add_description": None,
    "type": ["UPDATE"],
    "label": ["UPDATE people SET age = 18 WHERE name = 'Bob'"],
}


@pytest.fixture(scope="module", params=["small", pytest.param("full", marks=pytest.mark.slow)])
def made(request: pytest.FixtureRequest) -> Iterator[SqlEnvironment]:
    yield from opened("sql", {"tasks": {"grammar": request.param, "count": 200}})


def running(*statements: str) -> list[Action]:
    return [calling("sql", statement=one) for one in statements]


@pytest.mark.long
def test_a_split_has_every_kind(made: SqlEnvironment) -> None:
    kinds = Counter(task.info["kind"] for task in made.tasks("heldout"))
    assert len(kinds) == len(GRAMMARS[made.tasks("train")[0].info["grammar"]][1])
    assert min(kinds.values()) >= 8


@pytest.mark.long
def test_what_else_is_changed_or_told_fails(made: SqlEnvironment) -> None:
    for task in made.tasks("train")[:40]:
        *calls, last = made.oracle(task)
        table = task.data["tables"][0]["name"]
        assert reward(made, task, *calls, last) == 1.0
        assert reward(made, task, *calls) == 0.0, "without an answer"
        looking = running(f"SELECT * FROM {table}", "SELECT nothing FROM nowhere")
        assert reward(made, task, *looking, *calls, last) == 1.0
        for harm in (f"DELETE FROM {table}", "CREATE TABLE more (a)", f"DROP TABLE {table}"):
            assert reward(made, task, *calls, *running(harm), last) == 0.0
        if task.secret["answer"] is None:
            assert reward(made, task, last) == 0.0
        else:
            cells = task.secret["answer"]
            for wrong in ("", "done", f"not {last.answer}", " or ".join([*cells, "7"]), "0"):
                assert reward(made, task, *calls, answered(wrong)) == float(wrong in cells)


def test_rows_are_a_share_of_what_is_right_and_wrong(made: SqlEnvironment) -> None:
    def rows(task: Task, *actions: Action) -> float:
        return judged(made, task, *actions).parts["rows"]

    for task in made.tasks("train")[:15]:
        *calls, last = made.oracle(task)
        table = task.data["tables"][0]["name"]
        assert rows(task, *calls, last) == 1.0
        assert rows(task, answered("?")) == 0.0
        if task.secret["answer"] is None:
            more = running(f"CREATE TABLE more AS SELECT * FROM {table}")
            assert 0.0 < rows(task, *calls, *more, last) < 1.0
            assert rows(task, *more, last) == 0.0


def test_several_cells_in_any_order() -> None:
    made = SqlEnvironment(MadeRequests(60))
    tasks = [task for task in made.tasks("train") if task.info["kind"] == "conditions"]
    task = next(task for task in tasks if len(task.secret["answer"]) > 2)
    cells: Sequence[str] = task.secret["answer"][::-1]
    for text in (", ".join(cells), "\n".join(cells), json.dumps(cells)):
        assert reward(made, task, answered(text)) == 1.0
    for wrong in (", ".join(cells[1:]), ", ".join([*cells, cells[0]]), " ".join(cells)):
        assert reward(made, task, answered(wrong)) == 0.0
    part = judged(made, task, answered(", ".join(cells[1:]))).parts["rows"]
    assert part == pytest.approx((len(cells) - 1) / len(cells))


def test_records_in_dbbenchs_format(tmp_path: Path) -> None:
    path = write(tmp_path / "records.json", RECORD, CHANGE, RECORD)
    environment = SqlEnvironment(RecordFile(path, heldout_share=0.0))
    question, change = sorted(environment.tasks("train"), key=lambda task: task.info["kind"])[::-1]
    assert len(environment.tasks("train")) == 2
    assert not environment.spec.parts.keys() & {"progress", "harm"}
    assert reward(environment, question, answered("41.0")) == 1.0
    assert reward(environment, question, answered("17")) == 0.0
    assert reward(environment, change, answered("done")) == 0.0
    other_way = running(
        "DELETE FROM people WHERE age < 20", "INSERT INTO people VALUES ('Bob', 18)"
    )
    assert reward(environment, change, *other_way, answered("done")) == 1.0
    assert question.prompt == "What is the age of Ann? The table is people."
    assert change.prompt == "Make Bob 18."


def test_a_change_that_leaves_all_as_it_is_still_has_to_be_made(tmp_path: Path) -> None:
    same = {**CHANGE, "label": ["UPDATE people SET age = 17 WHERE name = 'Eve'"]}
    path = write(tmp_path / "same.json", same)
    environment = SqlEnvironment(RecordFile(path, heldout_share=0.0))
    (task,) = environment.tasks("train")
    assert reward(environment, task, answered("done")) == 0.0
    assert reward(environment, task, *environment.oracle(task)) == 1.0


BROKEN = {
    "entry 1: 'label' must be there": {**RECORD, "label": []},
    "entry 1: 'description' must be": {**RECORD, "description": 3},
    "entry 1: 'table' must have": {**RECORD, "table": {"table_name": "a"}},
    "is not the type of a column": {
        **RECORD,
        "table": {
            "table_name": "a",
            "table_info": {"columns": [{"name": "a", "type": "TEXT); DROP"}], "rows": []},
        },
    },
    "entry 1: table 'a': Python int too large": {
        **RECORD,
        "table": {
            "table_name": "a",
            "table_info": {"columns": [{"name": "a", "type": "INTEGER"}], "rows": [[1 << 63]]},
        },
    },
    "entry 1: table 'a': string or blob too big": {
        **RECORD,
        "table": {
            "table_name": "a",
            "table_info": {"columns": [{"name": "a", "type": "TEXT"}], "rows": [["b" * 30_000]]},
        },
    },
    "entry 1: no such table: nowhere": {**CHANGE, "label": ["UPDATE nowhere SET a = 1"]},
}


@pytest.mark.parametrize("message", BROKEN)
def test_broken_records_are_named(tmp_path: Path, message: str) -> None:
    path = write(tmp_path / "broken.json", BROKEN[message])
    with pytest.raises(DataError) as error:
        SqlEnvironment(RecordFile(path))
    assert message in str(error.value)


def test_a_made_change_that_changes_nothing_is_no_task(made: SqlEnvironment) -> None:
    scene = scene_of(made.tasks("train")[0])
    nothing = Request("delete", "Delete nothing.", f"DELETE FROM {scene.theme.table} WHERE 0", True)
    assert _task(scene, nothing, "small") is None


def test_names_that_need_quotes_in_sqlite_only() -> None:
    assert for_sqlite("UPDATE people SET a = 1", "people") == "UPDATE people SET a = 1"
    quoted = "UPDATE `a b` SET a = 'a b'"
    assert for_sqlite(quoted, "a b") == quoted
