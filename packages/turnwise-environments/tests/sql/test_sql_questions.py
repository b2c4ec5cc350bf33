"""Questions about a SQLite file, which is read where it is and stays as it is."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from environment_playing import answered, calling, played, reward, steps_of, write
from turnwise.errors import DataError
from turnwise_environments.sql.environment import SqlEnvironment
from turnwise_environments.sql.questions import QuestionFile, digest_of

QUESTION: dict[str, Any] = {
    "question": "Who is 41?",
    "answer": "Ann",
    "statement": "SELECT name FROM people WHERE age = 41",
}


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "people.sqlite"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute('CREATE TABLE people (name, age, "full name")')
        connection.executemany("INSERT INTO people VALUES (?, ?, '')", [("Ann", 41), ("Bob", 17)])
        connection.execute("CREATE VIEW old AS SELECT name FROM people WHERE age > 20")
    return path


def environment_of(database: Path, *records: Any) -> SqlEnvironment:
    file = write(database.with_suffix(".jsonl"), *records)
    return SqlEnvironment(QuestionFile(file, 0.0, database=str(database)))


def test_a_question_is_answered_by_queries(database: Path) -> None:
    made = environment_of(database, QUESTION)
    (task,) = made.tasks("train")
    play = played(made, task, *made.oracle(task))
    assert steps_of(play)[0].observation.content.endswith("name\nAnn")
    assert reward(made, task, *made.oracle(task)) == 1.0
    assert reward(made, task, answered("Bob")) == 0.0


def test_the_file_stays_as_it_is(database: Path) -> None:
    made, before = environment_of(database, QUESTION), digest_of(database)
    (task,) = made.tasks("train")
    for statement in ("DELETE FROM people", "DROP VIEW old", "CREATE TABLE more (a)"):
        play = played(made, task, calling("sql", statement=statement), answered("Ann"))
        assert "readonly" in steps_of(play)[0].observation.content
    assert digest_of(database) == before


def test_answers_of_another_file_are_refused(database: Path) -> None:
    known = {**QUESTION, "database": digest_of(database)}
    assert environment_of(database, known).tasks("train")
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("UPDATE people SET age = 40")
    with pytest.raises(DataError, match=r"line 1: the answer was taken from another file"):
        environment_of(database, known)


def test_what_is_no_database_is_told(tmp_path: Path, database: Path) -> None:
    with pytest.raises(DataError, match=r"none\.sqlite: there is no such file"):
        environment_of(tmp_path / "none.sqlite", QUESTION)
    text = tmp_path / "text.sqlite"
    text.write_text("no database, but long enough to look like one " * 40)
    with pytest.raises(DataError, match=r"text\.sqlite: SQLite cannot read it: file is not a"):
        environment_of(text, QUESTION)
    database.with_name(f"{database.name}-wal").write_text("more")
    with pytest.raises(DataError, match="has changes that are not in it yet"):
        environment_of(database, QUESTION)
