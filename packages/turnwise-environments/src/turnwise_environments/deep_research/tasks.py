"""Questions made of conditions on the classes of the search corpus that only one class meets.

Each condition is met by many classes and can be read off a class's page. A set is kept if exactly
one class over all documents meets all of it, and none of its conditions can be left out; and if
looking for one of its methods comes to the class, some pages down, and looking for all of its words
at once does not show it. No class is the answer in both splits.
"""

import itertools
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from turnwise.environments.search.cache import Record, cached
from turnwise.environments.search.corpus import Document
from turnwise.environments.search.tasks import TASK_BUILDER, question_id
from turnwise.environments.tasksets import SOLVED, Split, TaskSet
from turnwise.rewards.answer import normalise
from turnwise.seeds import derive
from turnwise.tools.bm25 import BM25Index
from turnwise.types import Task
from turnwise_environments.common import ids_with

FEWEST = 6
"""A condition is met by so many classes or more."""
MOST_HANDLES = 60
"""Most classes that may share a method which helps to find one of them."""
SIZES = (3, 4, 2)
"""Numbers of conditions in a set, in the order in which they are tried."""
PER_CLASS, TRIES = 16, 400
"""Sets that are kept of one class, and that are tried for it."""

Kind = Literal["method", "package", "base", "methods", "classes", "function"]


@dataclass(frozen=True, order=True)
class Condition:
    """Example: Condition("method", "close"), Condition("methods", "12")."""

    kind: Kind
    value: str

    @property
    def sentence(self) -> str:
        return {
            "method": f"It has the method {self.value}.",
            "package": f"It is in the package {self.value}, or in a part of it.",
            "base": f"It is derived from {self.value}.",
            "methods": f"The number of its own methods is {self.value}.",
            "classes": f"The number of classes in its module is {self.value}.",
            "function": f"Its module defines the function {self.value}.",
        }[self.kind]


@dataclass
class Classes:
    """The classes of the documents by id, and which meet which condition."""

    methods: dict[str, list[str]] = field(default_factory=dict)
    """Names of methods by the id of their class."""
    modules: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    """Names of a module's classes and functions, by the module's id."""
    names: dict[str, str] = field(default_factory=dict)
    meeting: dict[Condition, set[str]] = field(default_factory=lambda: defaultdict(set))

    @classmethod
    def of(cls, documents: Sequence[Document]) -> "Classes":
        found = cls()
        for document in documents:
            if document.kind == "class":
                found.methods[document.id] = []
                found.names[document.id] = document.name
            elif document.kind == "module":
                found.modules[document.id] = {"class": [], "function": []}
        for document in documents:
            owner = document.id.rpartition(".")[0]
            if document.kind == "method" and owner in found.methods:
                found.methods[owner].append(document.name)
            elif document.kind in ("class", "function") and owner in found.modules:
                found.modules[owner][document.kind].append(document.name)
        for document in documents:
            if document.kind == "class":
                for condition in found._conditions(document):
                    found.meeting[condition].add(document.id)
        return found

    def _conditions(self, document: Document) -> Iterator[Condition]:
        own = self.methods[document.id]
        yield from (Condition("method", name) for name in dict.fromkeys(own))
        yield Condition("methods", str(len(own)))
        yield Condition("package", document.id.partition(".")[0])
        module = self.modules.get(document.id.rpartition(".")[0])
        if module is not None:
            yield Condition("classes", str(len(module["class"])))
            yield from (Condition("function", name) for name in module["function"])
        for fact, target in document.facts:
            if fact == "base" and target != "object":
                yield Condition("base", target)


@dataclass(frozen=True)
class Inverted:
    """A set of conditions, and the one class that meets it."""

    conditions: tuple[Condition, ...]
    answer: str
    """Id of the class."""


def inverted(classes: Classes) -> Iterator[Inverted]:
    """Sets for every class whose name no other has."""
    spelled: dict[str, int] = defaultdict(int)
    for name in classes.names.values():
        spelled[normalise(name)] += 1
    by_class: Mapping[str, list[Condition]] = _by_class(classes)
    for identity in sorted(classes.names):
        if spelled[normalise(classes.names[identity])] == 1:
            yield from _sets(classes, identity, by_class[identity])


def _by_class(classes: Classes) -> Mapping[str, list[Condition]]:
    found: dict[str, list[Condition]] = defaultdict(list)
    for condition in sorted(classes.meeting):
        if len(classes.meeting[condition]) >= FEWEST:
            for identity in classes.meeting[condition]:
                found[identity].append(condition)
    return found


def _sets(classes: Classes, identity: str, known: Sequence[Condition]) -> Iterator[Inverted]:
    if handle(classes, known) is None:
        return
    stream = random.Random(derive("inverted", identity))
    kept: list[frozenset[Condition]] = []
    for size in SIZES:
        # A class of many methods has millions of combinations.
        every = list(itertools.islice(itertools.combinations(known, size), 20 * TRIES))
        for chosen in stream.sample(every, min(TRIES, len(every))):
            if len(kept) < PER_CLASS and _is_sound(classes, chosen):
                kept.append(frozenset(chosen))
                order = stream.sample(chosen, len(chosen))
                yield Inverted(tuple(order), identity)


def _is_sound(classes: Classes, chosen: Sequence[Condition]) -> bool:
    """Whether one class alone meets it, each condition is needed, and there is a way to find it."""
    if handle(classes, chosen) is None or len(_common(classes, chosen)) != 1:
        return False
    fewer = itertools.combinations(chosen, len(chosen) - 1)
    return all(len(_common(classes, rest)) > 1 for rest in fewer)


def handle(classes: Classes, chosen: Sequence[Condition]) -> Condition | None:
    """The method by which to look: that of the fewest classes, at most MOST_HANDLES."""
    methods = [one for one in chosen if one.kind == "method"]
    rarest = min(methods, key=lambda one: (len(classes.meeting[one]), one), default=None)
    usable = rarest is not None and len(classes.meeting[rarest]) <= MOST_HANDLES
    return rarest if usable else None


def _common(classes: Classes, chosen: Sequence[Condition]) -> set[str]:
    return set.intersection(*(classes.meeting[one] for one in chosen))


RANDOM_SCORE = 0.0211
"""Measured on all tasks of Python 3.11: success of `random_actions`."""
PAGE = 5
"""Results of one search."""
DEEPEST = 100
"""Places down to which results can be turned over."""
BUILDER = (*TASK_BUILDER, Path(__file__))


def standard_tasks(documents: Sequence[Document], index: BM25Index) -> TaskSet:
    records = cached("deep_research", BUILDER, lambda: build_tasks(documents, index))
    tasks: dict[Split, list[Task]] = {"train": [], "heldout": []}
    for record in records:
        tasks[record.pop("split")].append(Task(**record))
    return TaskSet.of(tasks, SOLVED | {"random": RANDOM_SCORE}, content=ids_with("open"))


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
