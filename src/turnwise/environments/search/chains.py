"""Question candidates out of the graph: chains of one to three relations.

Every candidate has exactly one answer over all documents, because each relation on its way is
single-valued for the name it is asked of.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from turnwise.environments.search.graph import RELATIONS, Edge, Graph, Relation
from turnwise.environments.search.wording import chain_question, wanted

HOPS = ("one", "two", "three")
TRIVIAL = frozenset({"object", "exception"})
"""Base classes of nearly everything: neither asked about nor passed through."""

MODULE = Relation("module", "class", "module")
BASE = Relation("base", "class", "class")


@dataclass(frozen=True)
class Candidate:
    """A question with its answer and the way to it.

    Example: Candidate("two", "Which module defines the class that has the method extractall?",
        given=("extractall",), searches=(("extractall", "TarFile"), ("TarFile", "tarfile")),
        wanted=("Class of extractall", "Module of TarFile"),
        evidence=(frozenset({9313}), frozenset({9312})))
    """

    hops: str
    """one, two, three or intersection."""
    question: str
    given: tuple[str, ...]
    """Names in the question."""
    searches: tuple[tuple[str, str], ...]
    """(query, name to find) in order; the last name is the answer."""
    wanted: tuple[str, ...]
    """The name that each search finds, in the words of the cards; "" where it is not known yet."""
    evidence: tuple[frozenset[int], ...]
    """Positions, for each search, of the documents that state what is to be found."""
    inverse: bool = False
    """Whether a thing is to be found by what its card states, and not each by its name."""

    @property
    def answer(self) -> str:
        """The one right answer."""
        return self.searches[-1][1]

    @property
    def symbols(self) -> tuple[str, ...]:
        """Every name that the question needs: given, on the way, and the answer."""
        return (*self.given, *(found for _, found in self.searches))


def chains(graph: Graph) -> Iterator[Candidate]:
    """All chains, in an order that depends on the documents only."""
    for kind in ("class", "function", "method"):
        for name in graph.names(kind):
            for relations, edges in _walks(graph, kind, (name,)):
                yield _chain(name, relations, edges)


Walk = tuple[tuple[Relation, ...], tuple[Edge, ...]]


def _walks(graph: Graph, kind: str, names: tuple[str, ...]) -> Iterator[Walk]:
    """Every way on from the last name, up to three relations in all."""
    if len(names) > len(HOPS):
        return
    for relation, edge in steps(graph, kind, names):
        yield (relation,), (edge,)
        for relations, edges in _walks(graph, relation.end, (*names, edge.name)):
            yield (relation, *relations), (edge, *edges)


def steps(graph: Graph, kind: str, names: tuple[str, ...]) -> Iterator[tuple[Relation, Edge]]:
    """Every relation that leads from the last of `names`, of a `kind`, to one name not met yet."""
    seen = {name.lower() for name in names} | TRIVIAL
    for relation in RELATIONS:
        edge = graph.follow(relation, names[-1]) if relation.start == kind else None
        if edge and edge.name.lower() not in seen and is_known(graph, relation, edge):
            yield relation, edge


def is_known(graph: Graph, relation: Relation, edge: Edge) -> bool:
    """Whether a document describes the class; private base classes have none."""
    return relation != BASE or bool(graph.neighbours(MODULE, edge.name))


def _chain(name: str, relations: tuple[Relation, ...], edges: tuple[Edge, ...]) -> Candidate:
    found = [edge.name for edge in edges]
    return Candidate(
        hops=HOPS[len(edges) - 1],
        question=chain_question(relations, name),
        given=(name,),
        searches=tuple(zip([name, *found], found, strict=False)),
        wanted=tuple(map(wanted, relations, [name, *found])),
        evidence=tuple(edge.evidence for edge in edges),
        inverse=any(relation.inverse for relation in relations),
    )
