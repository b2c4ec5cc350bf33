"""The model that a method asks: the recipe's policy in its engine, an endpoint, or a script.

Not here: episodes of the policy, which `Material.components` plays.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from itertools import count
from typing import TYPE_CHECKING

from turnwise import event_loop
from turnwise.chat.endpoint import ChatEndpoint, NoWordsError, check_endpoint
from turnwise.engines.base import Sampling, StopReason
from turnwise.registry import load_function
from turnwise_judges.models import EngineModel, Policy, example_reply
from turnwise_judges.settings import EndpointJudgeModel, PolicyJudgeModel, ScriptedJudgeModel
from turnwise_synthesis.items import Refused

if TYPE_CHECKING:
    from turnwise.config import Recipe
    from turnwise.parts.components import Components
    from turnwise_synthesis.items import Material

Messages = Sequence[Mapping[str, str]]
"""Chat messages: {"role": "system" or "user", "content": text}."""
Ask = Callable[[Messages, int], Awaitable[str]]
_SESSIONS = count()


class Model:
    """Example: Model(ask).ask([{"role": "user", "content": "Who wrote Emma?"}], [1, 2])."""

    def __init__(self, ask: Ask) -> None:
        """`ask` gives the reply to messages under a seed."""
        self._ask = ask

    def ask(self, messages: Messages, seeds: Sequence[int]) -> list[str]:
        """The model's replies, one for each seed, sampled at the same time. Raises Refused where
        one has no words or does not fit into the context, InfrastructureError where an endpoint
        fails."""
        return event_loop.finish(self._all(messages, seeds))

    async def _all(self, messages: Messages, seeds: Sequence[int]) -> list[str]:
        return list(await asyncio.gather(*(self._ask(messages, seed) for seed in seeds)))


def make_model(material: "Material") -> Model:
    """The model of `synthesis.model`. Raises ConfigError for one that cannot be asked."""
    config = material.settings.model
    if isinstance(config, ScriptedJudgeModel):
        return Model(_scripted(config))
    if isinstance(config, EndpointJudgeModel):
        return Model(_endpoint(config))
    return Model(_policy(config, material.components))


def _scripted(config: ScriptedJudgeModel) -> Ask:
    script = load_function(config.script, "synthesis") if config.script else example_reply

    async def ask(messages: Messages, seed: int) -> str:
        del seed
        return str(script(messages))

    return ask


def _endpoint(config: EndpointJudgeModel) -> Ask:
    check_endpoint("synthesis.model", config.url, config.name, config.key_variable)
    endpoint = ChatEndpoint(config.url, "the model", seconds=60, key_variable=config.key_variable)
    body = {
        "model": config.name,
        "temperature": config.temperature,
        "max_tokens": config.max_tokens,
    }

    async def ask(messages: Messages, seed: int) -> str:
        try:
            reply = await endpoint.ask({**body, "messages": list(messages), "seed": seed % 2**31})
        except NoWordsError:
            raise Refused("no words") from None
        return reply.text

    return ask


def _policy(config: PolicyJudgeModel, components: "Components") -> Ask:
    model = EngineModel(Policy.of(components, lambda: "policy"))
    engine = components.engine

    async def ask(messages: Messages, seed: int) -> str:
        session = f"synthesis/{next(_SESSIONS)}"
        sampling = Sampling(max_tokens=config.max_tokens, temperature=config.temperature, seed=seed)
        engine.open(session)
        try:
            reply = await engine.generate(model.prompt(messages), sampling, session=session)
        finally:
            engine.close(session)
        if reply.stop_reason == StopReason.CONTEXT:
            raise Refused("too long")
        return model.reply(reply)

    return ask


def built(recipe: "Recipe", stack: ExitStack) -> "Components":
    """The parts of a recipe with its engine ready to sample, which end with the stack."""
    from turnwise.models.places import check_model
    from turnwise.parts.first_checks import known_of
    from turnwise.threads import configure_threads, set_variables

    set_variables()
    recipe.check_tokens()
    known = known_of(recipe)
    check_model(recipe.model)
    configure_threads(recipe.threads)
    from turnwise.parts.components import build_components
    from turnwise.parts.resources import resources_of

    alone = {name: one.for_evaluation(False) for name, one in recipe.added().items()}
    resources = stack.enter_context(resources_of(recipe.model_copy(update=alone), None))
    parts = build_components(recipe, None, None, resources, known)
    stack.callback(lambda: event_loop.finish(parts.stop()))
    event_loop.finish(parts.load(0))
    return parts
