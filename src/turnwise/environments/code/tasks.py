"""The made tasks of the code environment: a function in words, and hidden calls.

Not here: how functions are made (`pipelines.py`), programs to repair (`programs.py`), how answers
are judged (`environment.py`).
"""

import hashlib
import json
import random
from collections.abc import Mapping, Sequence

from turnwise.environments.base import Split
from turnwise.environments.code.pipelines import Pipeline, draw, inputs, is_sound
from turnwise.errors import ConfigError
from turnwise.seeds import derive
from turnwise.types import Task

NAME = "solve"
EXAMPLES = 2
"""Inputs that are shown with their results; they are not among the hidden ones."""
DRAFTS_PER_TASK = 200


def made_tasks(count: int, most_steps: int) -> dict[Split, list[Task]]:
    """`count` tasks for each split; no function of one does what one of the other does.

    Raises ConfigError where there are not so many different functions of so few steps.
    """
    tasks: dict[Split, list[Task]] = {"train": [], "heldout": []}
    tried, seen = inputs(), set()
    for number in range(2 * count * DRAFTS_PER_TASK):
        stream = random.Random(derive("code", number))
        pipeline = draw(stream, most_steps)
        behaviour = json.dumps([pipeline(values) for values in tried])
        split: Split = "heldout" if derive("split", behaviour) % 2 else "train"
        if behaviour in seen or len(tasks[split]) == count or not is_sound(pipeline, tried):
            continue
        seen.add(behaviour)
        tasks[split].append(_task(pipeline, tried, stream))
        if all(len(found) == count for found in tasks.values()):
            return tasks
    found = min(map(len, tasks.values()))
    raise ConfigError(f"code: there are only about {found} such functions: lower count")


def _task(pipeline: Pipeline, tried: Sequence[list[int]], stream: random.Random) -> Task:
    shown = [[stream.randint(-9, 20) for _ in range(5)] for _ in range(EXAMPLES)]
    examples = [f"{NAME}({values}) is {pipeline(values)!r}" for values in shown]
    prompt = (
        f"Write a Python function {NAME}(values). It takes a list of whole numbers. "
        f"{pipeline.words} For example, {', and '.join(examples)}."
    )
    secret = {
        "name": NAME,
        "solution": pipeline.code(NAME),
        "cases": [[[values], pipeline(values), None] for values in tried],
    }
    return Task(task_id(prompt), prompt, secret, info={"steps": len(pipeline.steps) - 1})


def task_id(prompt: str) -> str:
    """An id that is the same wherever the prompt is the same."""
    return hashlib.sha256(prompt.encode()).hexdigest()[:16]


def tasks_hash(tasks: Mapping[Split, Sequence[Task]]) -> str:
    """A hash of all tasks and of what is expected."""
    digest = hashlib.sha256()
    for split, entries in tasks.items():
        for task in entries:
            digest.update(json.dumps([split, task.prompt, dict(task.secret)]).encode())
    return digest.hexdigest()
