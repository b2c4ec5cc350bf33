"""The Expander as an agent: an environment in which a policy describes names by formulas.

The agent searches the documents, sums up what a formula stands for, and answers with a formula
whose only member is the name that it was given. Any engine plays it, and it can be trained in.
"""

import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from turnwise import event_loop
from turnwise.config.rollout import EnvironmentConfig
from turnwise.environments.base import EnvironmentSpec, Split
from turnwise.environments.search.environment import SearchEnvironment
from turnwise.environments.search.library import STANDARD
from turnwise.errors import DataError, NotSupportedError, ToolError
from turnwise.ranges import Count
from turnwise.rollout.runner import RolloutRunner, members_of, new_groups
from turnwise.seeds import derive
from turnwise.tools.tool import tool
from turnwise.types import Action, Task, ToolCall, Trajectory, Verdict
from turnwise_synthesis.asking import built
from turnwise_synthesis.items import Material
from turnwise_synthesis.webshaper.expander import FORMS, GraphDescriber, stands_for
from turnwise_synthesis.webshaper.knowledge import Knowledge, standard_knowledge
from turnwise_synthesis.webshaper.projections import Formula, members, parsed, text_of

SHOWN = 10
"""Members of a formula that a summary names."""
NAME = "turnwise_synthesis.webshaper.agent:ExpanderEnvironment"


class ExpanderEnvironment(SearchEnvironment):
    """Describe a name of the library by a formula. Example: ExpanderEnvironment(top_k=3)."""

    facts = EnvironmentSpec("expander", "1")

    def __init__(self, top_k: Count = 3, result_tokens: Count = 40) -> None:
        """Searches give `top_k` results of `result_tokens` tokens each."""
        super().__init__(STANDARD, top_k, result_tokens)
        self.knowledge = standard_knowledge(self.documents)

    def tasks(self, split: Split) -> Sequence[Task]:
        """The names that the split's questions ask for, each once."""
        asked = super().tasks(split)
        names = {one.secret["answers"][0]: one for one in asked if "chain" in one.secret}
        kinds = {document.name: document.kind for document in self.documents}
        return [task_of(name, kinds[name]) for name in names if name in kinds]

    @tool
    def summarise(self, formula: str) -> str:
        """Count and name what a formula such as ^class.base("Mapping") stands for."""
        try:
            found = sorted(members(self._parsed(formula), self.knowledge.graph))
        except DataError as error:
            raise ToolError(str(error)) from None
        return f"{len(found)}: {', '.join(found[:SHOWN])}"

    def _parsed(self, text: str) -> Formula:
        return parsed(text, self.knowledge.relations)

    async def verify(self, trajectory: Trajectory) -> Verdict:
        """1 for a formula that stands for the name alone, can be searched for, and needs all its
        parts."""
        name, success = trajectory.task.data["name"], False
        with suppress(DataError):
            formula = self._parsed(trajectory.answer or "")
            success = stands_for(formula, name, self.knowledge)
        return Verdict(float(success), success, {}, f"answered {trajectory.answer!r}")

    def oracle(self, task: Task) -> Sequence[Action]:
        """Search for the name, sum up a formula, and answer with it."""
        name, kind = task.data["name"], task.data["kind"]
        describer = GraphDescriber(self.knowledge, FORMS)
        formula = describer.describe(name, kind, random.Random(derive("expander", name)))
        if formula is None:
            raise NotSupportedError(f"expander: no formula is known for {name}")
        text = text_of(formula)
        calls = [ToolCall("search", {"query": name}), ToolCall("summarise", {"formula": text})]
        return [*(Action("", calls=(call,)) for call in calls), Action("", answer=text)]


def task_of(name: str, kind: str) -> Task:
    """The task to describe a name."""
    prompt = f"Give a formula that stands for the {kind} {name} alone."
    return Task(f"{kind}:{name}", prompt, data={"name": name, "kind": kind})


@dataclass(frozen=True)
class AgentDescriber:
    """Finds formulas by episodes of a policy, one for each name."""

    runner: RolloutRunner
    knowledge: Knowledge

    @classmethod
    def of(cls, material: Material, knowledge: Knowledge) -> "AgentDescriber":
        """The recipe's policy in its engine. Raises ConfigError for what cannot work."""
        from turnwise.rollout.order import RolloutSchedule

        chosen = EnvironmentConfig(name=NAME)
        recipe = material.recipe.model_copy(update={"environment": chosen})
        parts = built(recipe, material.resources)
        return cls(parts.runner(RolloutSchedule(recipe.rollout).limits(0)), knowledge)

    def describe(self, name: str, kind: str, drawn: random.Random) -> Formula | None:
        planned = new_groups([task_of(name, kind)], 1, drawn.getrandbits(62), "expander")
        (played,) = members_of(event_loop.finish(self.runner.play_groups(planned)))
        if played.verdict is None or not played.verdict.success:
            return None
        return parsed(played.answer or "", self.knowledge.relations)
