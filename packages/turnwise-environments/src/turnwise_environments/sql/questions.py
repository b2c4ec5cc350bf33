"""Questions about the tables of a SQLite file, which is read where it is, whatever its size.

A line of the file of questions is an object: `question`, `answer` (a value, or a list of them in
any order), and where they are known `statement` (the query that gives it), `kind` and `database`,
the digest of the file from which the answer was taken. `turnwise synthesise` writes such files.
"""

import hashlib
import re
import sqlite3
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnwise.environments.tasksets import TaskFile, TaskSet
from turnwise.errors import DataError
from turnwise.types import Task
from turnwise_environments.common import check_texts, identity
from turnwise_environments.tools.sql import open_file, quoted, shown

MAX_TOLD = 4000
"""Characters of the tables' columns; beyond them the names of tables stand alone."""
_PLAIN = re.compile(r"[A-Za-z_]\w*", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class QuestionFile(TaskFile):
    """The tasks of a file of questions about a SQLite database."""

    database: str

    @property
    def database_path(self) -> Path:
        """The database, with `~` expanded."""
        return Path(self.database).expanduser()

    def load(self) -> TaskSet:
        """Raises DataError for a file that cannot be read, and, naming the line, for a question
        whose answer was taken from another one."""
        digest = digest_of(self.database_path)

        def read(record: Mapping[str, Any], where: str) -> Task:
            if record.get("database", digest) != digest:
                raise DataError(
                    f"{where}: the answer was taken from another file than {self.database}, or "
                    "before it was changed: make the questions again"
                )
            return _read_task(record, where, digest)

        return TaskSet.read(self, read, "questions")


def digest_of(database: Path) -> str:
    """The sha256 of a database's file, in hexadecimal. Raises DataError as `open_file` does."""
    open_file(database).close()
    with database.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def told_tables(database: Path) -> str:
    """The tables as a first message has them. Example: "staff(name, age) pets(pet, owner)"."""
    connection = open_file(database)
    found = tables_in(connection)
    connection.close()
    told = [f"{plainly(name)}({', '.join(map(plainly, found[name]))})" for name in found]
    if sum(map(len, told)) <= MAX_TOLD:
        return " ".join(told)
    names = ", ".join(map(plainly, found))
    return f"{names} (SELECT sql FROM sqlite_master tells their columns)"


def tables_in(connection: sqlite3.Connection) -> dict[str, list[str]]:
    """The columns of each table and view that can be read; virtual tables are left out."""
    listed = connection.execute("PRAGMA table_list").fetchall()
    names = [
        name
        for schema, name, kind, *_ in listed
        if schema == "main" and kind in ("table", "view") and not name.startswith("sqlite_")
    ]
    found = {}
    for name in sorted(names):
        with suppress(sqlite3.Error):  # a view of what is no longer there
            rows = connection.execute(f"PRAGMA table_xinfo({quoted(name)})").fetchall()
            found[name] = [column for _, column, *_, hidden in rows if hidden != 1]
    return found


def plainly(name: str) -> str:
    """A name as SQL needs it.

    >>> plainly("age"), plainly("unit price")
    ('age', '"unit price"')
    """
    return name if _PLAIN.fullmatch(name) else quoted(name)


def _read_task(record: Mapping[str, Any], where: str, digest: str) -> Task:
    check_texts(record, ("question",), where)
    answer = record.get("answer")
    cells = [shown(cell) for cell in (answer if isinstance(answer, list) else [answer])]
    if answer is None or not all(cell.strip() for cell in cells) or not cells:
        raise DataError(f"{where}: 'answer' must be there, a value or a list of them")
    question = record["question"]
    secret: dict[str, Any] = {"statement": record.get("statement"), "answer": cells, "state": {}}
    info = {"kind": str(record.get("kind", "question"))}
    return Task(identity([question, digest]), question, secret, {"database": digest}, info)
