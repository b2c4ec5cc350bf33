"""The knowledge that formulas are about: documents with facts, and the search over them.

It is that of the search environment, or a file of one's own: documents as that environment reads
them, each with a kind and facts, which its text states.

    {"title": "Emma", "kind": "novel", "text": "A novel by Jane Austen.",
     "facts": {"author": "Jane Austen"}, "kinds": {"author": "person"}}
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from turnwise.environments.records import read_each
from turnwise.environments.search.chains import TRIVIAL
from turnwise.environments.search.corpus import Document
from turnwise.environments.search.documents import index_documents
from turnwise.environments.search.graph import RELATIONS, Graph, Relation
from turnwise.environments.search.tasks import SEARCH_DEPTH
from turnwise.errors import DataError
from turnwise.rewards.answer import normalise
from turnwise.tools.bm25 import BM25Index
from turnwise_synthesis.webshaper.projections import inverse


@dataclass
class Knowledge:
    """Example: Knowledge(standard_library(), RELATIONS)."""

    documents: Sequence[Document]
    relations: Sequence[Relation]
    avoided: frozenset[str] = frozenset()
    """Names, in lower case, that no formula is to have."""
    _found: dict[str, tuple[int, ...]] = field(default_factory=dict)
    _names: dict[str, list[str]] = field(default_factory=dict)
    _guesses: dict[Relation, str] = field(default_factory=dict)

    @cached_property
    def graph(self) -> Graph:
        """The facts."""
        return Graph(self.documents, self.relations)

    @cached_property
    def _index(self) -> BM25Index:
        return index_documents(self.documents)

    def names(self, kind: str) -> list[str]:
        """The names of a kind that formulas may have."""
        if kind not in self._names:
            found = self.graph.names(kind)
            self._names[kind] = [name for name in found if name.lower() not in self.avoided]
        return self._names[kind]

    def ways(self, name: str, kind: str) -> list[tuple[Relation, str]]:
        """The relations that lead to a name of a kind, each with a name from which it does."""
        return [
            (relation, edge.name)
            for relation in self.relations
            if relation.end == kind
            for edge in self.graph.neighbours(inverse(relation), name)
            if edge.name.lower() not in self.avoided
        ]

    def search(self, query: str) -> tuple[int, ...]:
        """Positions of the documents that a search shows first; each query is run once."""
        if query not in self._found:
            self._found[query] = tuple(self._index.search(query, SEARCH_DEPTH))
        return self._found[query]

    def stated(self, query: str) -> set[str]:
        """All names in what a search shows."""
        found = [self.documents[position] for position in self.search(query)]
        return {name for one in found for name in (one.name, *(target for _, target in one.facts))}

    def most_frequent(self, relation: Relation) -> str:
        """The name to which a relation leads from most others, the best guess without a search;
        empty where several are as frequent."""
        if relation not in self._guesses:
            back = inverse(relation)
            counted = Counter(
                {
                    name: len(self.graph.neighbours(back, name))
                    for name in self.graph.names(relation.end)
                }
            ).most_common(2)
            alone = len({count for _, count in counted}) == len(counted) > 0
            self._guesses[relation] = counted[0][0] if alone else ""
        return self._guesses[relation]


def read_knowledge(file: Path, avoided: frozenset[str] = frozenset()) -> Knowledge:
    """Read a file of one's own. Raises DataError, in one line, for a broken record, two names for
    one thing, and a relation that leads in a circle."""
    entries, broken = read_each(file, _entry)
    for sentence in broken:
        raise DataError(sentence.removesuffix(": left out"))
    kinds: dict[str, str] = {}
    names: dict[str, tuple[str, str]] = {}
    for entry in entries:
        for name, kind in entry.names():
            _check_one_name(names, name, entry.where)
            if kinds.setdefault(name, kind) != kind:
                raise DataError(f"{entry.where}: {name!r} is a {kinds[name]} elsewhere: rename one")
    documents = [entry.document(number) for number, entry in enumerate(entries)]
    relations = {
        Relation(fact, one.kind, kinds[target]) for one in documents for fact, target in one.facts
    }
    ordered = sorted(relations, key=lambda one: (one.subject, one.fact, one.object))
    knowledge = Knowledge(documents, [*ordered, *map(inverse, ordered)], avoided)
    for relation in ordered:
        _check_circles(knowledge.graph, relation, file)
    return knowledge


@dataclass(frozen=True)
class _Entry:
    where: str
    title: str
    kind: str
    text: str
    facts: Mapping[str, str]
    kinds: Mapping[str, str]

    def names(self) -> Iterator[tuple[str, str]]:
        """Every name with its kind: that of a fact's target is its own, or the fact's name."""
        yield self.title, self.kind
        for fact, target in self.facts.items():
            yield target, self.kinds.get(fact, fact)

    def document(self, number: int) -> Document:
        facts = tuple(self.facts.items())
        return Document(str(number), self.title, self.kind, self.title, self.text, facts)


def _entry(record: Mapping[str, Any], where: str) -> _Entry:
    texts = [record.get(name) for name in ("title", "kind", "text")]
    facts, kinds = record.get("facts", {}), record.get("kinds", {})
    tables = isinstance(facts, dict) and isinstance(kinds, dict)
    if not tables or not all(
        isinstance(one, str) and one for one in (*texts, *facts.values(), *kinds.values())
    ):
        raise DataError(
            f"{where}: a record has the texts title, kind and text, and the table facts"
        )
    for target in facts.values():
        if normalise(target) not in normalise(str(record["text"])):
            raise DataError(f"{where}: the text does not say {target!r}, which is among the facts")
    title, kind, text = map(str, texts)
    return _Entry(where, title, kind, text, facts, kinds)


def _check_one_name(names: dict[str, tuple[str, str]], name: str, where: str) -> None:
    """Raise DataError for a name that differs from another one by case or punctuation alone."""
    known, there = names.setdefault(normalise(name), (name, where))
    if known != name:
        raise DataError(
            f"{where}: {name!r} and {known!r} ({there}) are two names for one thing: write one"
        )


def _check_circles(graph: Graph, relation: Relation, file: Path) -> None:
    """Raise DataError where a relation leads from a name back to it: a question would hold its own
    answer. It is stated in one direction; the other is known."""
    done: set[str] = set()
    for name in graph.names(relation.subject):
        way: list[str] = []
        _walk(graph, relation, name, way, done, file)


def _walk(
    graph: Graph, relation: Relation, name: str, way: list[str], done: set[str], file: Path
) -> None:
    if name in way:
        circle = " -> ".join([*way[way.index(name) :], name])
        raise DataError(
            f"{file}: {relation.subject}.{relation.fact} leads in a circle, {circle}: remove a fact"
        )
    if name in done:
        return
    way.append(name)
    for edge in graph.neighbours(relation, name):
        _walk(graph, relation, edge.name, way, done, file)
    way.pop()
    done.add(name)


def standard_knowledge(
    documents: Sequence[Document], avoided: frozenset[str] = frozenset()
) -> Knowledge:
    """The knowledge of the search environment's own documents."""
    return Knowledge(documents, RELATIONS, avoided | TRIVIAL)
