"""The tasks of the SQL environment: tables, a request, and what comes of it.

A draft becomes a task only if doing nothing fails: a change must change something, and an answer
must not stand in the request's words. Not here: what is asked (`requests.py`).
"""

import hashlib
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from turnwise.environments.tasksets import SOLVED, Draft, TaskSet, drafted
from turnwise.options import Options
from turnwise.ranges import Count
from turnwise.rewards.answer import normalise
from turnwise.seeds import derive
from turnwise.types import Task
from turnwise_environments.sql.requests import GRAMMARS, THEMES, Request, Scene
from turnwise_environments.tools.sql import Database, Table, shown

RANDOM_SCORES = {"small": 0.011, "full": 0.008}
"""Measured on the standard tasks: success of an agent that runs a statement of the grammar, with
names that the tables have, and answers with a number below 10."""


@dataclass(frozen=True)
class MadeRequests(Options):
    """`count` tasks in each split; no request of one is in the other, whatever the rows."""

    count: Count = 1000
    grammar: Literal["small", "full"] = "full"

    def load(self) -> TaskSet:
        """Make them."""
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
    """A task whose id is a hash of what it asks, and of what."""
    plain = [table.plain() for table in tables]
    content = json.dumps([prompt, plain], sort_keys=True)
    identity = hashlib.sha256(content.encode()).hexdigest()[:16]
    return Task(identity, prompt, secret, {"tables": plain}, info)


def scene_of(task: Task) -> Scene:
    """The theme and the rows of a task that was made."""
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
