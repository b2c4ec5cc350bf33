"""The model that a method asks: the recipe's policy in its engine, an endpoint, or a script.

Not here: episodes of the policy, which `Material.components` plays.
"""

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from turnwise import event_loop
from turnwise.chat.endpoint import LongError, NoWordsError
from turnwise_judges.base import JudgeModel, Message
from turnwise_judges.making import make_model as make_judge_model
from turnwise_judges.models import Policy
from turnwise_judges.settings import PolicyJudgeModel
from turnwise_synthesis.items import Refused

if TYPE_CHECKING:
    from turnwise.config import Recipe
    from turnwise.parts.components import Components
    from turnwise_synthesis.items import Material

SECONDS = 60.0
"""The deadline of a reply of an endpoint."""


class Model:
    """Example: Model(ScriptedModel(str)).ask([{"role": "user", "content": "Who?"}], [1, 2])."""

    def __init__(self, model: JudgeModel) -> None:
        self._model = model

    def ask(self, messages: Sequence[Message], seeds: Sequence[int]) -> list[str]:
        """The model's replies, one for each seed, sampled at the same time. Raises Refused where
        one has no words or does not fit into the context, InfrastructureError where an endpoint
        fails."""
        return event_loop.finish(self._all(messages, seeds))

    async def _all(self, messages: Sequence[Message], seeds: Sequence[int]) -> list[str]:
        return list(await asyncio.gather(*(self._one(messages, seed) for seed in seeds)))

    async def _one(self, messages: Sequence[Message], seed: int) -> str:
        try:
            return (await self._model.complete(messages, seed)).text
        except NoWordsError:
            raise Refused("no words") from None
        except LongError:
            raise Refused("too long") from None


def make_model(material: "Material") -> Model:
    """The model of `synthesis.model`. Raises ConfigError for one that cannot be asked."""
    config = material.settings.model
    of_policy = isinstance(config, PolicyJudgeModel)
    policy = Policy.of(material.components, lambda: "policy") if of_policy else None
    return Model(make_judge_model(config, policy, SECONDS, "synthesis"))


def built(recipe: "Recipe", stack: ExitStack) -> "Components":
    """The parts of a recipe with its engine ready to sample, which end with the stack."""
    from turnwise.models.places import check_model
    from turnwise.parts.first_checks import known_of
    from turnwise.threads import configure_threads, set_variables

    set_variables()
    recipe.check_tokens()
    known = known_of(recipe)
    check_model(recipe.model, recipe.rollout.max_tokens)
    configure_threads(recipe.threads)
    from turnwise.parts.components import build_components
    from turnwise.parts.resources import resources_of

    alone = {name: one.for_evaluation(False) for name, one in recipe.added().items()}
    resources = stack.enter_context(resources_of(recipe.model_copy(update=alone), None))
    parts = build_components(recipe, None, None, resources, known)
    stack.callback(lambda: event_loop.finish(parts.stop()))
    event_loop.finish(parts.load(0))
    return parts
