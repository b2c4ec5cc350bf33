"""Reads tasks in the format of AgentBench's dbbench: a table, what is asked, and what is right.

A record has `description`, `add_description`, `type`, `table` and `label`: the answer's cells, or
for INSERT, UPDATE and DELETE the statement that makes the wanted change. Those statements are
MySQL's and run in SQLite here; the state that they leave is compared, not MySQL's checksum
(`answer_md5`). The queries that come with questions are not used: many are not SQL.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from turnwise.environments.tasksets import TaskFile, TaskSet
from turnwise.errors import DataError, ToolError
from turnwise.types import Task
from turnwise_environments.sql.tasks import make_task, outcome
from turnwise_environments.tools.sql import Table, quoted

CHANGES = ("INSERT", "UPDATE", "DELETE")
_PLAIN_NAME = re.compile(r"[A-Za-z_]\w*")
_COLUMN_TYPE = re.compile(r"[A-Za-z]\w*(\([0-9, ]+\))?")


@dataclass(frozen=True)
class RecordFile(TaskFile):
    """The tasks of a .jsonl or .json file in the format of AgentBench's dbbench."""

    def load(self) -> TaskSet:
        """Read them. Raises DataError, naming file and line or entry, for what is missing or does
        not run."""
        return TaskSet.read(self, _task)


def _task(record: Mapping[str, Any], where: str) -> Task:
    for name, form in (("description", str), ("type", list), ("label", list), ("table", dict)):
        if not isinstance(record.get(name), form) or not record[name]:
            raise DataError(f"{where}: {name!r} must be there, and not be empty")
    kind = str(record["type"][0])
    table = _table(record["table"], where)
    answer: list[str] | None = [str(cell) for cell in record["label"]]
    statement = None
    if kind in CHANGES:
        statement, answer = for_sqlite(str(record["label"][0]), table.name), None
    try:
        state = outcome([table], statement or "SELECT 1")[1]
    except (ToolError, ValueError) as error:
        raise DataError(f"{where}: {error}") from None
    prompt = f"{record['description']} {record.get('add_description', '')}".strip()
    secret = {"statement": statement, "answer": answer, "state": state}
    return make_task(prompt, [table], secret, {"kind": kind})


def _table(record: Mapping[str, Any], where: str) -> Table:
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
