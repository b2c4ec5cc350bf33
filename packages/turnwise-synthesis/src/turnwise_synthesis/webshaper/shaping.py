"""Questions out of formulas: what a formula becomes, from its first layer to its item."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from turnwise.seeds import derive
from turnwise_synthesis.heldout import normalised
from turnwise_synthesis.items import Item, Refused
from turnwise_synthesis.webshaper.expander import TRIES, Describes, expanded
from turnwise_synthesis.webshaper.knowledge import Knowledge
from turnwise_synthesis.webshaper.projections import (
    Formula,
    Intersection,
    Union,
    constants,
    nodes,
    text_of,
)
from turnwise_synthesis.webshaper.validator import validate
from turnwise_synthesis.webshaper.way import Node
from turnwise_synthesis.webshaper.wording import question_of

HELD_OUT_NAME, NO_FORMULA, ONE_SEARCH = "held-out name", "no formula", "one search"


@dataclass(frozen=True)
class Shaper:
    """Shapes one question for each attempt. Example: `WebShaper(material).shaper.propose(0)`."""

    knowledge: Knowledge
    describer: Describes
    """Finds the first layer."""
    expander: Describes
    """Finds the others."""
    seed: int
    layers: int
    searches: int
    """Most searches of a question's way."""
    validated: bool = True
    formulas: Sequence[Formula] = ()
    """First layers of one's own; without them they are drawn."""

    def propose(self, attempt: int) -> Item:
        """The question of an attempt. Raises Refused."""
        drawn = random.Random(derive(self.seed, attempt))
        begun = self.formulas[attempt % len(self.formulas)] if self.formulas else self._begun(drawn)
        node = expanded(begun, self.layers - 1, self.searches, self.expander, self.knowledge, drawn)
        if len(node.way) == 1:
            raise Refused(ONE_SEARCH)
        names = (*constants(node.formula), *(one.name for one in node.all()))
        if not self.knowledge.avoided.isdisjoint(name.lower() for name in names):
            raise Refused(HELD_OUT_NAME)
        if self.validated:
            validate(node, self.knowledge)
        return item_of(node)

    def _begun(self, drawn: random.Random) -> Formula:
        """The first layer: a formula that stands for a name that is drawn."""
        relations = self.knowledge.relations
        kinds = sorted({one.end for one in relations if self.knowledge.names(one.end)})
        for _ in range(TRIES):
            kind = drawn.choice(kinds)
            name = drawn.choice(self.knowledge.names(kind))
            formula = self.describer.describe(name, kind, drawn)
            if formula is not None:
                return formula
        raise Refused(NO_FORMULA)


def item_of(node: Node) -> Item:
    """The question of a formula, as the search environment reads it."""
    question, way = question_of(node.formula), node.way
    joined = any(isinstance(one, Union | Intersection) for one in nodes(node.formula))
    return Item(
        normalised(question),
        {
            "question": question,
            "answers": [node.name],
            "chain": [[search.query, search.found] for search in way],
            "wanted": [search.wanted for search in way],
            "info": {"searches": len(way), "form": "expanded" if joined else "chain"},
            "formula": text_of(node.formula),
        },
    )
