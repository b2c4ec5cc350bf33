"""The made tasks of the code environment: a function in words, and hidden calls.

Not here: how functions are made (`pipelines.py`), programs to repair (`programs.py`), how answers
are judged (`environment.py`).
"""

import hashlib
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from turnwise.environments.tasksets import SOLVED, Draft, Tasks, TaskSet, drafted, every
from turnwise.options import Options
from turnwise.ranges import Count, Range
from turnwise.seeds import derive
from turnwise.types import Task
from turnwise_environments.code.pipelines import Pipeline, draw, inputs, is_sound

NAME = "solve"
EXAMPLES = 2
"""Inputs that are shown with their results; they are not among the hidden ones."""
DRAFTS_PER_TASK = 200


RANDOM_SCORE = 0.0
"""Measured, none of the 2,000 standard tasks: success of a random function of the same making."""


@dataclass(frozen=True)
class MadeFunctions(Options):
    """`count` functions in each split, of one to `max_steps` steps; no function of one split does
    what one of the other does."""

    count: Count = 1000
    max_steps: Annotated[int, Range(1, 3)] = 3

    def load(self) -> TaskSet:
        """Make them. Raises ConfigError where there are not so many."""
        scores = SOLVED | ({"random": RANDOM_SCORE} if self == STANDARD else {})
        drafts = drafted(self._draft, 2 * self.count * DRAFTS_PER_TASK)
        return TaskSet.made("code", drafts, self.count, scores, content=tasks_content)

    def _draft(self, number: int) -> Draft:
        stream, tried = random.Random(derive("code", number)), inputs()
        pipeline = draw(stream, self.max_steps)
        behaviour = json.dumps([pipeline(values) for values in tried])
        return Draft(
            behaviour,
            lambda: _task(pipeline, tried, stream) if is_sound(pipeline, tried) else None,
        )


STANDARD = MadeFunctions()


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


def tasks_content(tasks: Tasks) -> str:
    """All that tasks ask and expect."""
    rows = ([split, task.prompt, dict(task.secret)] for split, task in every(tasks))
    return "".join(map(json.dumps, rows))
