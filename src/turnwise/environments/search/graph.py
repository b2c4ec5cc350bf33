"""The facts of the documents as a graph: which names stand in which relation to which.

Names are bare, and a name may belong to several documents. A relation is therefore asked of all the
documents with that name at once, whatever its case, because a search does not distinguish them; it
is single-valued for a name only if they agree.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from turnwise.environments.search.corpus import Document


@dataclass(frozen=True)
class Relation:
    """A way from the names of one kind to the names of another.

    Example: Relation("base", "class", "class") leads from a class to its base class; with
    `inverse`, from a base class to the classes that have it.
    """

    fact: str
    """The relation that documents state: module, class or base."""
    subject: str
    """Kind of the document that states it."""
    object: str
    """Kind of the document that it names."""
    inverse: bool = False

    @property
    def start(self) -> str:
        """Kind of the name that the relation leads from."""
        return self.object if self.inverse else self.subject

    @property
    def end(self) -> str:
        """Kind of the name that the relation leads to."""
        return self.subject if self.inverse else self.object


RELATIONS = (
    Relation("module", "function", "module"),
    Relation("module", "class", "module"),
    Relation("class", "method", "class"),
    Relation("base", "class", "class"),
    Relation("module", "function", "module", inverse=True),
    Relation("module", "class", "module", inverse=True),
    Relation("class", "method", "class", inverse=True),
    Relation("base", "class", "class", inverse=True),
)
"""The relations that questions follow. The package of a module is in its name: nothing to ask."""


class Edge(NamedTuple):
    """A relation's target from a name, and the documents (by position) that say so."""

    name: str
    evidence: frozenset[int]


class Graph:
    """All facts of a list of documents.

    Example: Graph(documents).follow(Relation("module", "class", "module"), "TarFile")
        == Edge("tarfile", frozenset({9312}))
    """

    def __init__(
        self, documents: Sequence[Document], relations: Sequence[Relation] = RELATIONS
    ) -> None:
        self._relations = relations
        self._edges: dict[tuple[Relation, str], dict[str, set[int]]] = {}
        self._neighbours: dict[tuple[Relation, str], list[Edge]] = {}
        self._packages: dict[str, str] = {}
        self._names: dict[str, list[str]] = defaultdict(list)
        for position, document in enumerate(documents):
            folded = document.name.lower()
            self._packages.setdefault(folded, document.id.partition(".")[0])
            self._names[document.kind].append(document.name)
            for fact, target in document.facts:
                self._add(fact, document, target, position)

    def names(self, kind: str) -> list[str]:
        """The names of documents of a kind, but those that are spelled in two ways, in order."""
        spellings: dict[str, set[str]] = defaultdict(set)
        for name in self._names[kind]:
            spellings[name.lower()].add(name)
        return sorted(name for found in spellings.values() if len(found) == 1 for name in found)

    def package(self, name: str) -> str:
        """Top-level package of the first document with that name, or the name itself."""
        return self._packages.get(name.lower(), name)

    def neighbours(self, relation: Relation, name: str) -> Sequence[Edge]:
        """Everything that the relation leads to from any document with that name."""
        key = (relation, name.lower())
        if key not in self._neighbours:
            found = self._edges.get(key, {})
            self._neighbours[key] = [Edge(end, frozenset(found[end])) for end in sorted(found)]
        return self._neighbours[key]

    def follow(self, relation: Relation, name: str) -> Edge | None:
        """The one name that the relation leads to; None when it leads to no name, or to several."""
        edges = self.neighbours(relation, name)
        return edges[0] if len(edges) == 1 else None

    def _add(self, fact: str, document: Document, target: str, position: int) -> None:
        for relation in self._relations:
            if relation.fact == fact and relation.subject == document.kind:
                ends = (document.name, target)
                start, end = reversed(ends) if relation.inverse else ends
                edges = self._edges.setdefault((relation, start.lower()), {})
                edges.setdefault(end, set()).add(position)
