"""The tasks of the SQL environment: tables, a request, and what comes of it.

A draft becomes a task only if doing nothing fails: a change must change something, and an answer
must not stand in the request's words.
"""

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from turnwise.environments.tasksets import SOLVED, Draft, TaskFile, TaskSet, drafted
from turnwise.errors import DataError, ToolError
from turnwise.options import Options
from turnwise.ranges import Count
from turnwise.rewards.answer import normalise
from turnwise.seeds import derive
from turnwise.types import Task
from turnwise_environments.common import identity
from turnwise_environments.sql.requests import GRAMMARS, THEMES, Request, Scene
from turnwise_environments.tools.sql import Database, Table, quoted, shown

RANDOM_SCORES = {"small": 0.011, "full": 0.008}
"""Measured on the standard tasks: success of `random_actions`."""


@dataclass(frozen=True)
class MadeRequests(Options):
    """`count` tasks in each split; no request of one is in the other, whatever the rows."""

    count: Count = 1000
    grammar: Literal["small", "full"] = "full"

    def load(self) -> TaskSet:
        standard = self.count == MadeRequests.count
        scores = SOLVED | ({"random": RANDOM_SCORES[self.grammar]} if standard else {})
        return TaskSet.made("sql", drafted(self._draft), self.count, scores)

    def _draft(self, number: int) -> Draft:
        stream = random.Random(derive("sql", self.grammar, number))
        draw, makers = GRAMMARS[self.grammar]
        scene = draw(stream)
        request = stream.choice(makers)(stream, scene)
        return Draft(request.text, lambda: _task(scene, request, self.grammar))


STANDARD = MadeRequests()


def outcome(tables: Sequence[Table], statement: str) -> tuple[list[str], dict[str, Any]]:
    """The first column of a statement's result, and the state of the tables after it."""
    database = Database(tables)
    cells = [shown(row[0]) for row in database.rows(statement)]
    state = database.state()
    database.close()
    return cells, state


def make_task(
    prompt: str, tables: Sequence[Table], secret: Mapping[str, Any], info: Mapping[str, Any]
) -> Task:
    plain = [table.plain() for table in tables]
    return Task(identity([prompt, plain]), prompt, secret, {"tables": plain}, info)


def scene_of(task: Task) -> Scene:
    tables = [Table.of(plain) for plain in task.data["tables"]]
    (theme,) = (theme for theme in THEMES if theme.table == tables[0].name)
    return Scene(theme, tables[0].rows, tables[1].rows if tables[1:] else ())


def _task(scene: Scene, request: Request, grammar: str) -> Task | None:
    tables = scene.tables()
    before = outcome(tables, "SELECT 1")[1]
    cells, after = outcome(tables, request.statement)
    words = normalise(request.text).split()
    if request.changes and before == after:
        return None
    if not request.changes and (not cells or any(normalise(cell) in words for cell in cells)):
        return None
    secret = {
        "statement": request.statement,
        "answer": None if request.changes else cells,
        "state": after,
    }
    forms = [f"{table.name}({', '.join(name for name, _ in table.columns)})" for table in tables]
    prompt = f"{' '.join(forms)} {request.text}"
    return make_task(prompt, tables, secret, {"kind": request.kind, "grammar": grammar})


CHANGES = ("INSERT", "UPDATE", "DELETE")
_PLAIN_NAME = re.compile(r"[A-Za-z_]\w*")
_COLUMN_TYPE = re.compile(r"[A-Za-z]\w*(\([0-9, ]+\))?")


@dataclass(frozen=True)
class RecordFile(TaskFile):
    """The tasks of a file in the format of AgentBench's dbbench."""

    def load(self) -> TaskSet:
        """Raises DataError, naming file and line or entry, for what is missing or does not run."""
        return TaskSet.read(self, _read_task)


def _read_task(record: Mapping[str, Any], where: str) -> Task:
    for name, form in (("description", str), ("type", list), ("label", list), ("table", dict)):
        if not isinstance(record.get(name), form) or not record[name]:
            raise DataError(f"{where}: {name!r} must be there, and not be empty")
    kind = str(record["type"][0])
    table = _read_table(record["table"], where)
    answer: list[str] | None = [str(cell) for cell in record["label"]]
    statement = None
    if kind in CHANGES:
        statement, answer = for_sqlite(str(record["label"][0]), table.name), None
    try:
        state = outcome([table], statement or "SELECT 1")[1]
    except (ToolError, ValueError) as error:
        raise DataError(f"{where}: {error}") from None
    prompt = f"{record['description']} {record.get('add_description') or ''}".strip()
    secret = {"statement": statement, "answer": answer, "state": state}
    return make_task(prompt, [table], secret, {"kind": kind})


def _read_table(record: Mapping[str, Any], where: str) -> Table:
    try:
        info = record["table_info"]
        columns = tuple((str(one["name"]), str(one["type"])) for one in info["columns"])
        rows = tuple(tuple(row) for row in info["rows"])
        table = Table(str(record["table_name"]), columns, rows)
    except (KeyError, TypeError):
        form = "table_name, and table_info with columns (name, type) and rows"
        raise DataError(f"{where}: 'table' must have {form}") from None
    for _, kind in columns:
        if not _COLUMN_TYPE.fullmatch(kind):
            raise DataError(f"{where}: {kind!r} is not the type of a column")
    return table


def for_sqlite(statement: str, table: str) -> str:
    """The statement with the table's name in quotes where MySQL needs none and SQLite does.

    >>> for_sqlite("INSERT INTO 1952_races (a) VALUES (1)", "1952_races")
    'INSERT INTO "1952_races" (a) VALUES (1)'
    """
    if _PLAIN_NAME.fullmatch(table):
        return statement
    bare = re.compile(rf"(?<![\w`\"']){re.escape(table)}(?![\w`\"'])")
    return bare.sub(lambda _: quoted(table), statement, count=1)
