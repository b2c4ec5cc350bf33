"""The method `webshaper`: questions for the search environment out of expanded formulas."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from turnwise.environments.search.environment import SearchEnvironment
from turnwise.errors import ConfigError
from turnwise.ranges import Count
from turnwise.types import Task
from turnwise_synthesis.items import Item, Material
from turnwise_synthesis.webshaper.expander import FORMS, Describes, Form, GraphDescriber
from turnwise_synthesis.webshaper.knowledge import read_knowledge, standard_knowledge
from turnwise_synthesis.webshaper.projections import read_formulas
from turnwise_synthesis.webshaper.shaping import Shaper


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
        avoided = names_of(environment.tasks("heldout"))
        known = (
            read_knowledge(Path(knowledge), avoided)
            if knowledge
            else standard_knowledge(environment.documents, avoided)
        )
        begun = read_formulas(Path(formulas), known.graph, known.relations) if formulas else []
        describer = GraphDescriber(known, forms)
        agent: Describes = describer
        if expander == "policy":
            from turnwise_synthesis.webshaper.agent import AgentDescriber

            agent = AgentDescriber.of(material, known)
        self.shaper = Shaper(
            known, describer, agent, material.seed, layers, searches, validated, begun
        )

    def propose(self, attempt: int) -> Item:
        """The question of an attempt. Raises Refused."""
        return self.shaper.propose(attempt)


def names_of(tasks: Sequence[Task]) -> frozenset[str]:
    """All names that the ways of questions have, in lower case."""
    ways = [pair for task in tasks for pair in task.secret.get("chain", ())]
    given = [name for task in tasks for name in task.info.get("symbols", ())]
    return frozenset(name.lower() for name in (*given, *(found for _, found in ways)))
