"""The method `webshaper`: questions for the search environment out of expanded formulas."""

import random
from pathlib import Path
from typing import Literal

from turnwise.environments.search.environment import SearchEnvironment
from turnwise.errors import ConfigError
from turnwise.ranges import Count
from turnwise.seeds import derive
from turnwise_synthesis.heldout import normalised
from turnwise_synthesis.items import Item, Material, Refused
from turnwise_synthesis.webshaper.expander import (
    FORMS,
    TRIES,
    Describes,
    Form,
    GraphDescriber,
    expanded,
)
from turnwise_synthesis.webshaper.knowledge import read_knowledge, standard_knowledge
from turnwise_synthesis.webshaper.projections import (
    Formula,
    Intersection,
    Union,
    constants,
    nodes,
    read_formulas,
    text_of,
)
from turnwise_synthesis.webshaper.validator import validate
from turnwise_synthesis.webshaper.way import Node
from turnwise_synthesis.webshaper.wording import question_of

HELD_OUT_NAME, NO_FORMULA, ONE_SEARCH = "held-out name", "no formula", "one search"


class WebShaper:
    """Questions that need each of their searches. Example: WebShaper(material, layers=2)."""

    def __init__(
        self,
        material: Material,
        knowledge: str = "",
        formulas: str = "",
        layers: Count = 3,
        searches: Count = 4,
        forms: tuple[Form, ...] = FORMS,
        expander: Literal["graph", "policy"] = "graph",
        validated: bool = True,
    ) -> None:
        """The formulas are about the recipe's search environment, or a file of `knowledge`. They
        begin with a name that is drawn, or are those of a file of `formulas`; the `expander`, the
        graph or the recipe's policy as an agent, replaces their names. Each has `layers` layers of
        `forms`, as far as there are any, and two to `searches` searches on its way. Raises
        ConfigError or DataError for what cannot work."""
        if knowledge and expander == "policy":
            raise ConfigError("the policy expands formulas about Python's library: leave knowledge")
        environment = material.environment
        if not isinstance(environment, SearchEnvironment):
            raise ConfigError("webshaper is for the environment search: name it in the recipe")
        self.heldout = names_of(environment)
        self.knowledge = (
            read_knowledge(Path(knowledge), self.heldout)
            if knowledge
            else standard_knowledge(environment.documents, self.heldout)
        )
        graph, relations = self.knowledge.graph, self.knowledge.relations
        self.seeds = read_formulas(Path(formulas), graph, relations) if formulas else []
        self.seed, self.layers, self.searches = material.seed, layers, searches
        self.validated = validated
        self.describer = GraphDescriber(self.knowledge, forms)
        self.expander: Describes = self.describer
        if expander == "policy":
            from turnwise_synthesis.webshaper.agent import AgentDescriber

            self.expander = AgentDescriber.of(material, self.knowledge)
        self._kinds = sorted({one.end for one in relations if self.knowledge.names(one.end)})

    def propose(self, attempt: int) -> Item:
        """The question of an attempt. Raises Refused."""
        drawn = random.Random(derive(self.seed, attempt))
        begun = self.seeds[attempt % len(self.seeds)] if self.seeds else self._begun(drawn)
        node = expanded(begun, self.layers - 1, self.searches, self.expander, self.knowledge, drawn)
        if len(node.way) == 1:
            raise Refused(ONE_SEARCH)
        names = {*constants(node.formula), *(one.name for one in node.all())}
        if not self.heldout.isdisjoint(name.lower() for name in names):
            raise Refused(HELD_OUT_NAME)
        if self.validated:
            validate(node, self.knowledge)
        return item_of(node)

    def _begun(self, drawn: random.Random) -> Formula:
        """The first layer: a formula that stands for a name that is drawn."""
        for _ in range(TRIES):
            kind = drawn.choice(self._kinds)
            name = drawn.choice(self.knowledge.names(kind))
            formula = self.describer.describe(name, kind, drawn)
            if formula is not None:
                return formula
        raise Refused(NO_FORMULA)


def names_of(environment: SearchEnvironment) -> frozenset[str]:
    """All names that the way of a held-out question has, in lower case."""
    tasks = environment.tasks("heldout")
    ways = [pair for task in tasks for pair in task.secret.get("chain", ())]
    given = [name for task in tasks for name in task.info.get("symbols", ())]
    return frozenset(name.lower() for name in (*given, *(found for _, found in ways)))


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
