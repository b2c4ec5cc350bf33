"""The method `tables`: a SQLite file goes in, questions with queries and answers come out.

    [synthesis]
    method = "tables"
    options.database = "shop.sqlite"

The environment `sql` plays the items: `tasks = { database = "shop.sqlite", file = "items.jsonl" }`.
"""

import random
from contextlib import suppress
from pathlib import Path
from typing import Any

from turnwise.errors import ToolError
from turnwise.rewards.answer import normalise
from turnwise.seeds import derive
from turnwise_environments.sql.questions import digest_of
from turnwise_environments.tools.sql import DatabaseFile, literal, quoted, shown
from turnwise_synthesis.items import Item, Material, Refused
from turnwise_synthesis.tables.questions import (
    KINDS,
    MOST_SHARE,
    NothingToAsk,
    Question,
    Scene,
    is_plain,
)
from turnwise_synthesis.tables.schema import read_tables

CACHE_KIB = 256 * 1024
"""Memory for the file, which each question is looked for in several times."""


class Tables:
    """Example: Tables(material, "shop.sqlite").propose(0)."""

    def __init__(self, material: Material, database: str) -> None:
        """Raises DataError for a file that cannot be read, or has nothing to ask about."""
        path = Path(database).expanduser()
        self._seed, self._digest = material.seed, digest_of(path)
        self._database = DatabaseFile(path, CACHE_KIB)
        self._scene = Scene(self._database, read_tables(self._database, path))

    def propose(self, attempt: int) -> Item:
        stream = random.Random(derive(self._seed, attempt))
        try:
            question = self._question(stream)
            answer = self._answer(question)
        except ToolError:
            raise Refused("too slow") from None
        data = {
            "question": question.text,
            "answer": answer,
            "statement": question.statement,
            "kind": question.kind,
            "database": self._digest,
        }
        return Item(question.statement, data)

    def _question(self, stream: random.Random) -> Question:
        """A question of the first kind, in an order that is drawn, for which there is one."""
        for make in stream.sample(KINDS, len(KINDS)):
            with suppress(NothingToAsk):
                return make(stream, self._scene)
        raise Refused("nothing to ask")

    def _answer(self, question: Question) -> str:
        """The only answer, which neither the question tells nor a guess is likely to find."""
        rows = self._database.rows(question.statement)
        if len(rows) != 1:
            raise Refused("not unique")
        ((value,),) = rows
        if not is_plain(value) or value == 0:
            raise Refused("no value")
        told = normalise(shown(value))
        if f" {told} " in f" {normalise(question.text)} ":
            raise Refused("shown")
        if self._is_guessable(question, value):
            raise Refused("guessable")
        return shown(value)

    def _is_guessable(self, question: Question, value: Any) -> bool:
        """Whether an answer is the column's most frequent value, or one of a few."""
        column = question.column
        if column is None:
            return False
        same = f"{quoted(column.name)} = {literal(value)}"
        often = self._scene.count(self._scene.tables[question.table], same)
        return often > MOST_SHARE * column.filled or (often > 1 and often == column.most)
