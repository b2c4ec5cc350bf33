"""The held-out evaluation of a model behind an OpenAI-compatible endpoint.

The tasks, the environment's tools and verifier, the limits of turns, calls and seconds, and the
figures are those of every evaluation. Tokens are the endpoint's: there are no log-probabilities, no
provenance, and so nothing to train on or to keep as episodes. Not here: what an episode of such a
model is (`rollout/chat_episode.py`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx2

from turnwise import event_loop
from turnwise.chat.endpoint import ChatEndpoint, check_endpoint
from turnwise.config import Recipe
from turnwise.environments.base import Environment
from turnwise.environments.registry import environment_of
from turnwise.errors import ConfigError
from turnwise.evaluation.evaluate import choose_tasks, evaluate_policy
from turnwise.monitor.display import Display
from turnwise.rollout.chat_episode import INSTRUCTIONS, ChatModel, ChatRunner
from turnwise.rollout.priority_semaphore import PrioritySemaphore

CONCURRENT = 8
"""Episodes under way, unless engine.max_concurrent_episodes says otherwise."""
TURN_SECONDS, ATTEMPTS = 300.0, 6
"""Deadline of one attempt at a turn, and attempts at it: with pauses, 15 s of refusals."""
OWN = {"messages", "model", "n", "stream", "tools"}
"""Fields of a request that no option may change."""


@dataclass(frozen=True)
class ModelAddress:
    """The address of a model. Example: ModelAddress("http://127.0.0.1:8000/v1", "qwen3")."""

    url: str
    """The endpoint up to `/v1`."""
    name: str
    """The model's name at the endpoint."""
    key_variable: str = ""
    """The environment variable that has the endpoint's key, if it needs one."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of each request. `temperature` is evaluation.temperature unless it is here."""
    instructions: str = INSTRUCTIONS
    """The system message."""


def evaluate_endpoint(recipe: Recipe, address: ModelAddress, display: Display) -> dict[str, Any]:
    """The summary of a model on a recipe's held-out tasks, with the tokens that the endpoint
    counted (`endpoint`) in place of those of an engine.

    Raises ConfigError for an address that is none, a key that is not there, an environment that
    shows images, and where there are no tasks; RunStoppedError where too many episodes have no
    grade, as when the endpoint is down.
    """
    _check(address)
    environment = environment_of(recipe)
    config = recipe.evaluation.model_copy(update={"prices": None})
    _check_environment(environment, config.best_of)
    tasks = choose_tasks(environment.tasks("heldout"), config.tasks, config.seed)
    if not tasks:
        raise ConfigError("there is nothing to evaluate: no held-out tasks, or evaluation.tasks=0")
    endpoint = ChatEndpoint(
        address.url,
        f"the model {address.name}",
        seconds=TURN_SECONDS,
        attempts=ATTEMPTS,
        key_variable=address.key_variable,
    )
    options = {"temperature": config.temperature, **address.options}
    model = ChatModel(endpoint, address.name, options, address.instructions)
    runner = ChatRunner(
        environment,
        model,
        recipe.rollout,
        PrioritySemaphore(recipe.engine.max_concurrent_episodes or CONCURRENT),
        progress=lambda _: display.advance(),
    )
    display.phase("evaluation", config.episodes_per_task * len(tasks))

    async def work() -> dict[str, Any]:
        _, summary = await evaluate_policy(runner, tasks, config, "evaluation/endpoint")
        return summary

    summary = event_loop.run(work())
    display.close()
    return _without_tokens(summary, recipe, model, address)


def _without_tokens(
    summary: dict[str, Any], recipe: Recipe, model: ChatModel, address: ModelAddress
) -> dict[str, Any]:
    """A summary without the figures of sampled tokens, which there are none of."""
    budgets = {name: curve for name, curve in summary["budgets"].items() if name != "tokens"}
    cautions = list(summary["cautions"])
    if recipe.reward is not None:
        cautions.append("The recipe's [reward] is left out: rewards are the environment's own")
    asked = {"requests": model.requests, "read": model.read, "written": model.written}
    return summary | {
        "tokens_sampled": None,
        "tokens_per_success": None,
        "budgets": budgets,
        "cautions": cautions,
        "endpoint": {"url": address.url, "model": address.name, **asked},
    }


def _check(address: ModelAddress) -> None:
    for name in sorted(OWN & address.options.keys()):
        raise ConfigError(f"--model-option {name} is turnwise's own to say: leave it out")
    check_endpoint("--model-url", address.url, address.name, address.key_variable)
    try:
        parts = httpx2.URL(address.url)
    except httpx2.InvalidURL as error:
        raise ConfigError(f"--model-url: {error}") from None
    if parts.userinfo or parts.query:
        raise ConfigError("--model-url has a password or a query: give keys by --key-variable")


def _check_environment(environment: Environment, best_of: str) -> None:
    if environment.shows_images:
        raise ConfigError(
            f"environment {environment.spec.name} shows images, and results of tools are words: "
            'set environment.options.observations = "text"'
        )
    if best_of and best_of not in environment.spec.parts:
        raise ConfigError(
            f"evaluation.best_of is {best_of!r}, which environment {environment.spec.name} does "
            "not report: leave it out, evaluation.best_of="
        )
    if environment.sandbox is not None:
        environment.sandbox.tier  # noqa: B018 - finds it
