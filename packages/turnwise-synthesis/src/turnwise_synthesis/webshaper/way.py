"""The way to what a formula stands for: a perfect agent's searches, and what each must find."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from turnwise.environments.search.graph import Relation
from turnwise.environments.search.wording import wanted, wanted_with
from turnwise_synthesis.items import Refused
from turnwise_synthesis.webshaper.knowledge import Knowledge
from turnwise_synthesis.webshaper.projections import (
    Constant,
    Formula,
    Intersection,
    Projection,
    Union,
    members,
)

NOT_UNIQUE, NOT_FOUND = "not unique", "not found"


@dataclass(frozen=True)
class Search:
    """One search of the way. Example: Search("TarInfo", "tarfile", "Module of TarInfo")."""

    query: str
    found: str
    wanted: str
    """The name to be found, in the words of documents."""


@dataclass(frozen=True)
class Node:
    """A part of a formula that stands for one name, and the searches that find it, once the parts
    below it are found."""

    formula: Formula
    name: str
    searches: tuple[Search, ...]
    below: tuple["Node", ...]

    def all(self) -> Iterator["Node"]:
        """The node and all below it, in the order of searching."""
        for one in self.below:
            yield from one.all()
        yield self

    @property
    def way(self) -> list[Search]:
        """All searches in order; the last finds the answer."""
        return [search for node in self.all() for search in node.searches]


@dataclass(frozen=True)
class _Step:
    """A relation and the one name from which it leads to what is looked for."""

    relation: Relation
    name: str
    evidence: frozenset[int]


def node_of(formula: Formula, knowledge: Knowledge) -> Node:
    """The way to the one name that a formula stands for. Raises Refused where it, or a part on the
    way, stands for several, or where a search does not find what it is for."""
    found = members(formula, knowledge.graph)
    if len(found) != 1:
        raise Refused(NOT_UNIQUE)
    (name,) = found
    below: list[Node] = []
    steps = [step for part in _parts(formula) for step in _steps(part, name, knowledge, below)]
    return Node(formula, name, tuple(_searches(steps, name, knowledge)), tuple(below))


def _parts(formula: Formula) -> Sequence[Formula]:
    if isinstance(formula, Intersection):
        return [inner for part in formula.parts for inner in _parts(part)]
    return [formula]


def _steps(part: Formula, name: str, knowledge: Knowledge, below: list[Node]) -> Iterator[_Step]:
    """The step by which a part of a formula leads to a name; of a union the first part that does.
    What has to be found before it is added to `below`."""
    if isinstance(part, Union):
        part = next(one for one in part.parts if name in members(one, knowledge.graph))
    if isinstance(part, Intersection):
        for inner in part.parts:
            yield from _steps(inner, name, knowledge, below)
        return
    assert isinstance(part, Projection)  # constants stand in projections alone
    source = part.of
    if isinstance(source, Union):
        source = next(
            one
            for one in source.parts
            if name in members(Projection(part.relation, one), knowledge.graph)
        )
    if not isinstance(source, Constant):
        below.append(node_of(source, knowledge))
    start = source.name if isinstance(source, Constant) else below[-1].name
    for edge in knowledge.graph.neighbours(part.relation, start):
        if edge.name == name:
            yield _Step(part.relation, start, edge.evidence)


def _searches(steps: Sequence[_Step], name: str, knowledge: Knowledge) -> Iterator[Search]:
    """One search for all names at once, where it shows what states each step; else one for each."""
    query = " ".join(step.name for step in reversed(steps))
    if all(not step.evidence.isdisjoint(knowledge.search(query)) for step in steps):
        yield Search(query, name, _wanted(steps))
        return
    for step in steps:
        if step.evidence.isdisjoint(knowledge.search(step.name)):
            raise Refused(NOT_FOUND)
        yield Search(step.name, name, _wanted([step]))


def _wanted(steps: Sequence[_Step]) -> str:
    """The name to be found, in the words of documents."""
    if all(step.relation.inverse for step in steps):
        return wanted_with(*((step.relation, step.name) for step in steps))
    return " and ".join(wanted(step.relation, step.name) for step in steps)
