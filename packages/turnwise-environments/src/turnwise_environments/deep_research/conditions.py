"""Conditions on the classes of the search corpus, and sets of them that only one class meets.

Each condition is met by many classes and can be read off a class's page. A set is kept if exactly
one class over all documents meets all of it, and none of its conditions can be left out. Not here:
whether such a class can be found (`tasks.py`).
"""

import itertools
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from turnwise.environments.search.corpus import Document
from turnwise.rewards.answer import normalise
from turnwise.seeds import derive

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
        """The condition as a sentence of a question."""
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
    """The classes of the documents by id, with their methods, and which classes meet which
    condition."""

    methods: dict[str, list[str]] = field(default_factory=dict)
    """Names of methods by the id of their class."""
    modules: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    """Names of a module's classes and functions, by the module's id."""
    names: dict[str, str] = field(default_factory=dict)
    meeting: dict[Condition, set[str]] = field(default_factory=lambda: defaultdict(set))

    @classmethod
    def of(cls, documents: Sequence[Document]) -> "Classes":
        """Read them."""
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
    """Sets for every class whose name no other has, in an order that depends on the documents."""
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
