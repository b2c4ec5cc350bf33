"""The tasks of web forms: so many of each kind in each split, none twice.

The two splits share no names, cities, things or labels (`words.py`), so they share no page.
"""

import hashlib
import json
import random
from collections.abc import Iterator, Sequence

from turnwise.environments.tasksets import SOLVED, SPLITS, Split, Tasks, TaskSet, every
from turnwise.errors import ConfigError, unknown_name
from turnwise.seeds import derive
from turnwise.types import Task
from turnwise_environments.web_forms.kinds import KINDS
from turnwise_environments.web_forms.words import words_of

DRAFTS_PER_TASK = 50


COUNT = 1000
RANDOM_SCORE = 0.024
"""Measured on the standard tasks."""


def made_tasks(count: int, kinds: Sequence[str]) -> TaskSet:
    """`count` tasks for each split, the kinds in turn.

    Raises ConfigError for an unknown kind, and where there are not so many.
    """
    for kind in kinds:
        if kind not in KINDS:
            raise unknown_name("kind of web forms", kind, KINDS)
    tasks = {split: _made(split, count, kinds) for split in SPLITS}
    standard = count == COUNT and list(kinds) == list(KINDS)
    scores = SOLVED | ({"random": RANDOM_SCORE} if standard else {})
    return TaskSet.of(tasks, scores, content=_content)


def _content(tasks: Tasks) -> str:
    rows = ([split, one.prompt, dict(one.data), dict(one.secret)] for split, one in every(tasks))
    return "".join(map(json.dumps, rows))


def _made(split: Split, count: int, kinds: Sequence[str]) -> list[Task]:
    found: dict[str, Task] = {}
    drafts = {kind: _drafts(split, kind, count) for kind in kinds}
    while len(found) < count:
        kind = kinds[len(found) % len(kinds)]
        task = next((one for one in drafts[kind] if one.id not in found), None)
        if task is None:
            raise ConfigError(f"web_forms: there are not so many tasks {kind!r}: lower count")
        found[task.id] = task
    return list(found.values())


def _drafts(split: Split, kind: str, count: int) -> Iterator[Task]:
    for number in range(count * DRAFTS_PER_TASK):
        stream = random.Random(derive("web forms", split, kind, number))
        draft = KINDS[kind].make(words_of(split), stream)
        content = json.dumps([kind, draft.prompt, draft.data, draft.wanted])
        name = hashlib.sha256(content.encode()).hexdigest()[:16]
        data = {"kind": kind, **draft.data}
        yield Task(name, draft.prompt, {"wanted": draft.wanted}, data, info={"kind": kind})
