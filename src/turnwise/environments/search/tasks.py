"""The built-in tasks: questions about the standard library that must be searched for.

A candidate becomes a task only if it passes four checks over all documents: it has exactly one
answer (by construction, `chains.py` and `intersections.py`), it cannot be answered from its own
words or by a popular guess, no search on the way shows the answer too early, and the searches of a
perfect agent find what they need.

Train and held-out tasks share no name: whole top-level packages go to one side or the other, so
that most chains stay in one piece; chains across the border are given up, and so are training
questions with a name that a held-out one has.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from turnwise.environments.base import Split
from turnwise.environments.search.cache import Record, cached
from turnwise.environments.search.chains import Candidate, chains
from turnwise.environments.search.corpus import BUILDER, Document
from turnwise.environments.search.graph import Graph
from turnwise.environments.search.intersections import intersections
from turnwise.rewards import answer
from turnwise.rewards.answer import normalise
from turnwise.seeds import derive
from turnwise.tools import bm25
from turnwise.tools.bm25 import BM25Index
from turnwise.types import Task

MAX_TASKS_PER_ANSWER = 7
"""Tasks of one split and hop kind with the same answer, so that guessing it does not pay."""

SEARCH_DEPTH = 3
"""A perfect agent's search finds what it needs among so many results."""

_OWN_FILES = (
    *("chains.py", "documents.py", "graph.py", "intersections.py", "tasks.py", "wording.py"),
)
TASK_BUILDER = (
    *BUILDER,
    *(Path(__file__).with_name(name) for name in _OWN_FILES),
    Path(answer.__file__),
    Path(bm25.__file__),
)
"""The files whose text decides what the tasks are."""


def standard_tasks(documents: Sequence[Document], index: BM25Index) -> dict[Split, list[Task]]:
    """The tasks of both splits, shuffled by a hash; from the cache where they are in it.
    `documents` are those of `corpus.standard_library` and `index` is over them."""
    records = cached("tasks", TASK_BUILDER, lambda: build_tasks(documents, index))
    tasks: dict[Split, list[Task]] = {"train": [], "heldout": []}
    for record in records:
        tasks[record.pop("split")].append(Task(**record))
    return tasks


def build_tasks(documents: Sequence[Document], index: BM25Index) -> list[Record]:
    """The tasks as records: the fields of `Task`, and `split`."""
    graph = Graph(documents)
    search = _Search(index)
    sound = [
        candidate
        for candidate in (*chains(graph), *intersections(graph))
        if not is_guessable(candidate)
        and not has_shortcut(candidate, documents)
        and search.succeeds(candidate)
    ]
    train, heldout = separate(sound, graph)
    return [*_records("train", train), *_records("heldout", heldout)]


def is_guessable(candidate: Candidate) -> bool:
    """Whether the question's text holds the answer or a part of it, or the answer a name asked of.
    Any text in common counts, `io` in "function" too: too many are dropped rather than too few."""
    question = normalise(candidate.question)
    wanted = normalise(candidate.answer)
    held = any(part in question for part in (wanted, *wanted.split(".")))
    return held or any(normalise(name) in wanted for name in candidate.given)


def has_shortcut(candidate: Candidate, documents: Sequence[Document]) -> bool:
    """Whether a document that is needed for an earlier hop of a chain states the answer already.
    The module of a base class is often that of the class: then the last search is not needed."""
    if candidate.hops == "intersection":
        return False
    earlier = {position for evidence in candidate.evidence[:-1] for position in evidence}
    stated = {target for position in earlier for _, target in documents[position].facts}
    return candidate.answer in stated


def question_id(question: str) -> str:
    """An id that says nothing of the answer and is the same wherever the question is the same."""
    return hashlib.sha256(normalise(question).encode()).hexdigest()[:16]


@dataclass
class _Search:
    """A perfect agent's searches; each different one is run once."""

    index: BM25Index
    results: dict[str, frozenset[int]] = field(default_factory=dict)

    def succeeds(self, candidate: Candidate) -> bool:
        """Whether every search finds a document that states what it is for."""
        return all(
            not evidence.isdisjoint(self._found(query))
            for (query, _), evidence in zip(candidate.searches, candidate.evidence, strict=True)
        )

    def _found(self, query: str) -> frozenset[int]:
        if query not in self.results:
            self.results[query] = frozenset(self.index.search(query, SEARCH_DEPTH))
        return self.results[query]


def _records(split: Split, found: Sequence[Candidate]) -> Iterator[Record]:
    uses: Counter[tuple[str, str]] = Counter()
    for candidate in sorted(found, key=lambda entry: derive("task order", entry.question)):
        key = (candidate.hops, normalise(candidate.answer))
        uses[key] += 1
        if uses[key] <= MAX_TASKS_PER_ANSWER:
            yield {
                "split": split,
                "id": question_id(candidate.question),
                "prompt": candidate.question,
                "secret": {
                    "answers": [candidate.answer],
                    "chain": candidate.searches,
                    "wanted": candidate.wanted,
                    "inverse": candidate.inverse,
                },
                "info": {"hops": candidate.hops, "symbols": candidate.given},
            }


HELDOUT_SHARE = 0.45
"""Share of the weight of all candidates that the held-out packages may hold."""

TRAIN_PACKAGES = ("builtins",)
"""Packages that every agent should see in training."""

_WEIGHTS = {"one": 1.0, "two": 2.0, "three": 4.0, "intersection": 2.0}
"""Long chains are rare, so that losing one costs more."""


def separate(found: Sequence[Candidate], graph: Graph) -> tuple[list[Candidate], list[Candidate]]:
    """(training, held-out) candidates with no name in common, case aside, in their given order."""
    packages = [frozenset(graph.package(name) for name in entry.symbols) for entry in found]
    heldout_packages = _Partition(found, packages).heldout()
    heldout = [entry for entry, own in zip(found, packages, strict=True) if own <= heldout_packages]
    taken = {name.lower() for entry in heldout for name in entry.symbols}
    train = [
        entry
        for entry, own in zip(found, packages, strict=True)
        if own.isdisjoint(heldout_packages)
        and taken.isdisjoint(name.lower() for name in entry.symbols)
    ]
    return train, heldout


@dataclass
class _Partition:
    """Packages dealt to two sides: heaviest first, to the side with which they share most."""

    found: Sequence[Candidate]
    packages: Sequence[frozenset[str]]
    weight: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    links: dict[str, dict[str, float]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(float))
    )

    def heldout(self) -> set[str]:
        """The packages of the held-out side."""
        for entry, own in zip(self.found, self.packages, strict=True):
            self._count(own, _WEIGHTS[entry.hops])
        total = sum(self.weight.values())
        sides: tuple[set[str], set[str]] = (set(TRAIN_PACKAGES), set())
        room = [total * (1 - HELDOUT_SHARE), total * HELDOUT_SHARE]
        room[0] -= sum(self.weight[package] for package in TRAIN_PACKAGES)
        rest = sorted(set(self.weight) - sides[0], key=lambda name: (-self.weight[name], name))
        for package in rest:
            side = self._better_side(package, sides, room)
            sides[side].add(package)
            room[side] -= self.weight[package]
        return sides[1]

    def _count(self, own: frozenset[str], weight: float) -> None:
        for package in sorted(own):
            self.weight[package] += weight / len(own)
            for other in own - {package}:
                self.links[package][other] += weight

    def _better_side(self, package: str, sides: Sequence[set[str]], room: Sequence[float]) -> int:
        def worth(side: int) -> tuple[float, float]:
            # -1 is below every sum of links: a side without room comes after one that fits.
            fits = self.weight[package] <= room[side]
            # Sorted: sets of strings differ in order between processes, and sums by rounding.
            shared = sum(self.links[package][other] for other in sorted(sides[side]))
            return (shared if fits else -1.0, room[side])

        return max((0, 1), key=worth)
