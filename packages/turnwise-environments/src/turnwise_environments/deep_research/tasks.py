"""The tasks: a question made of conditions, and a way to its answer that is known to exist.

A set of conditions becomes a task only if looking for one of its methods comes to the class, some
pages down, and looking for all of its words at once does not show it. No class is the answer in
both splits. Not here: the conditions (`conditions.py`), the tools (`environment.py`).
"""

import json
from collections.abc import Sequence
from pathlib import Path

from turnwise.environments.search.cache import Record, cached
from turnwise.environments.search.corpus import Document
from turnwise.environments.search.tasks import TASK_BUILDER, question_id
from turnwise.environments.tasksets import SOLVED, Split, Tasks, TaskSet, every
from turnwise.rewards.answer import normalise
from turnwise.seeds import derive
from turnwise.tools.bm25 import BM25Index
from turnwise.types import Task
from turnwise_environments.deep_research import conditions
from turnwise_environments.deep_research.conditions import Classes, Inverted, handle, inverted

RANDOM_SCORE = 0.0211
"""Measured on all tasks of Python 3.11: success of an agent that looks for one of the methods, and
names the class of one of the first results."""
PAGE = 5
"""Results of one search."""
DEEPEST = 100
"""Places down to which results can be turned over."""
BUILDER = (*TASK_BUILDER, Path(__file__), Path(conditions.__file__))


def standard_tasks(documents: Sequence[Document], index: BM25Index) -> TaskSet:
    """The tasks of both splits, shuffled by a hash; from the cache where they are in it."""
    records = cached("deep_research", BUILDER, lambda: build_tasks(documents, index))
    tasks: dict[Split, list[Task]] = {"train": [], "heldout": []}
    for record in records:
        tasks[record.pop("split")].append(Task(**record))
    return TaskSet.of(tasks, SOLVED | {"random": RANDOM_SCORE}, content=_content)


def _content(tasks: Tasks) -> str:
    return json.dumps([[one.id, one.secret["open"]] for _, one in every(tasks)])


def build_tasks(documents: Sequence[Document], index: BM25Index) -> list[Record]:
    """The tasks as records: the fields of `Task`, and `split`."""
    classes = Classes.of(documents)
    places: dict[str, dict[str, int]] = {}
    found = []
    for one in inverted(classes):
        looked_for = handle(classes, one.conditions)
        assert looked_for is not None  # by construction
        method = looked_for.value
        if method not in places:
            ids = [documents[position].id for position in index.search(method, DEEPEST)]
            places[method] = {identity: place for place, identity in enumerate(ids)}
        place = places[method].get(f"{one.answer}.{method}")
        if place is not None and not is_shown_at_once(one, classes, documents, index):
            found.append(_record(one, classes, method, place))
    return sorted(found, key=lambda record: derive("task order", record["id"]))


def is_shown_at_once(
    one: Inverted, classes: Classes, documents: Sequence[Document], index: BM25Index
) -> bool:
    """Whether the question has the answer's name, or one search for all its words shows it."""
    name = classes.names[one.answer]
    if normalise(name) in normalise(question(one)):
        return True
    words = " ".join(condition.value for condition in one.conditions)
    first = [documents[position] for position in index.search(words, PAGE)]
    return any(f"{entry.id}.".startswith(f"{one.answer}.") for entry in first)


def question(one: Inverted) -> str:
    """The question that the agent is asked."""
    return " ".join(["Which class is this?", *(entry.sentence for entry in one.conditions)])


def _record(one: Inverted, classes: Classes, method: str, place: int) -> Record:
    asked = question(one)
    name = classes.names[one.answer]
    return {
        "split": "heldout" if derive("split", normalise(name)) % 2 else "train",
        "id": question_id(asked),
        "prompt": asked,
        "secret": {
            "answers": [name, one.answer],
            "look": [method, place // PAGE + 1],
            "open": one.answer,
        },
        "info": {
            "conditions": len(one.conditions),
            "methods": [entry.value for entry in one.conditions if entry.kind == "method"],
        },
    }
