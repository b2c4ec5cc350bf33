"""The Expander: replaces constants of a formula, layer by layer, by formulas that stand for them.

A constant is replaced by a projection, or an intersection of two, one perhaps of a union, whose
only member it is. Only what has to be found is expanded: of a union the part that leads on.
"""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from turnwise.environments.search.graph import Relation
from turnwise_synthesis.items import Refused
from turnwise_synthesis.webshaper.knowledge import Knowledge
from turnwise_synthesis.webshaper.projections import (
    Constant,
    Formula,
    Intersection,
    Projection,
    Union,
    members,
    nodes,
    replaced,
)
from turnwise_synthesis.webshaper.validator import is_redundant
from turnwise_synthesis.webshaper.way import Node, node_of

Form = Literal["projection", "intersection", "union"]
FORMS: tuple[Form, ...] = ("projection", "intersection", "union")
TRIES = 12
"""Formulas that are tried in a constant's place."""


class Describes(Protocol):
    """The interface of what finds a formula that stands for one name."""

    def describe(self, name: str, kind: str, drawn: random.Random) -> Formula | None:
        """A formula whose only member is a name of a kind; None where none is found."""


@dataclass(frozen=True)
class GraphDescriber:
    """Finds formulas in the graph, without a model."""

    knowledge: Knowledge
    forms: Sequence[Form]

    def describe(self, name: str, kind: str, drawn: random.Random) -> Formula | None:
        for _ in range(TRIES):
            formula = self._drawn(drawn.choice(self.forms), name, kind, drawn)
            if formula is not None and stands_for(formula, name, self.knowledge):
                return formula
        return None

    def _drawn(self, form: Form, name: str, kind: str, drawn: random.Random) -> Formula | None:
        wanted = 1 if form == "projection" else 2
        ways = self._ways(name, kind, drawn)
        parts: list[Formula] = [
            Projection(relation, Constant(source)) for relation, source in ways[:wanted]
        ]
        if len(parts) < wanted:
            return None
        if form == "union":
            parts[0] = self._widened(ways[0], drawn)
        return parts[0] if wanted == 1 else Intersection(tuple(parts))

    def _ways(self, name: str, kind: str, drawn: random.Random) -> list[tuple[Relation, str]]:
        """The relations that lead to a name, shuffled; half of the time those from kinds to which
        most relations lead come first, since their names can be replaced in their turn."""
        found = self.knowledge.ways(name, kind)
        drawn.shuffle(found)
        if drawn.random() < 0.5:
            leading = Counter(relation.end for relation in self.knowledge.relations)
            found.sort(key=lambda way: -leading[way[0].start])
        return found

    def _widened(self, way: tuple[Relation, str], drawn: random.Random) -> Formula:
        """A projection of a union of the name that leads to what is described and another one."""
        relation, source = way
        other = drawn.choice(self.knowledge.names(relation.start) or [source])
        names = [source, other]
        drawn.shuffle(names)
        return Projection(relation, Union(tuple(map(Constant, names))))


def stands_for(formula: Formula, name: str, knowledge: Knowledge) -> bool:
    """Whether a formula stands for a name alone, can be searched for, and needs all its parts."""
    if members(formula, knowledge.graph) != {name}:
        return False
    try:
        node = node_of(formula, knowledge)
    except Refused:
        return False
    return not is_redundant(node, knowledge)


def expanded(
    formula: Formula,
    layers: int,
    most_searches: int,
    describer: Describes,
    knowledge: Knowledge,
    drawn: random.Random,
) -> Node:
    """Replace constants by formulas, a layer of them after the other, as long as the way has at
    most so many searches. Raises Refused as `node_of` does."""
    node = node_of(formula, knowledge)
    fixed: set[str] = set()
    for _ in range(layers):
        leaves = [one for one in _leaves(node) if one[0] not in fixed]
        drawn.shuffle(leaves)
        for name, kind in leaves:
            fixed.add(name)
            inner = describer.describe(name, kind, drawn)
            if inner is None:
                continue
            wider = node_of(replaced(node.formula, name, inner), knowledge)
            if len(wider.way) <= most_searches:
                node = wider
    return node


def _leaves(node: Node) -> Iterator[tuple[str, str]]:
    """The constants from which the way begins, each with its kind; of unions only that which leads
    on, so that no search is for nothing."""
    for one in node.all():
        for part in nodes(one.formula):
            if isinstance(part, Projection) and isinstance(part.of, Constant):
                yield part.of.name, part.relation.start
