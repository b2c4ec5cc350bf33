"""The held-out evaluation of a model behind an endpoint of chat completions: `engine = "openai"`.

The tasks, the environment's tools and verifier, the limits of turns, calls and seconds, and the
figures are those of every evaluation. Tokens are the endpoint's: there are no log-probabilities, no
provenance, and so nothing to train on; episodes (`chat_episode.py`) are kept as words.
"""

from typing import Any

import httpx2

from turnwise import event_loop
from turnwise.chat.endpoint import ChatEndpoint, check_endpoint
from turnwise.config import OpenAIEngineConfig, Recipe
from turnwise.environments.base import Environment
from turnwise.environments.registry import environment_of
from turnwise.errors import ConfigError
from turnwise.evaluation.evaluate import evaluate_policy
from turnwise.evaluation.kept import Evaluated, write_evaluations
from turnwise.evaluation.policies import EVALUATED
from turnwise.monitor.display import Display
from turnwise.rollout.order import choose_tasks
from turnwise.rollout.priority_semaphore import PrioritySemaphore
from turnwise.storage.run_folder import RunFolder
from turnwise_gateway.chat_episode import ChatModel, ChatRunner

TURN_SECONDS, ATTEMPTS = 300.0, 6
"""Deadline of one attempt at a turn, and attempts at it: with pauses, 15 s of refusals."""
OWN = {"messages", "model", "n", "stream", "tools"}
"""Fields of a request that no recipe may change."""
EPISODES = 8
"""Episodes under way at once, where the recipe does not say."""


def evaluate_endpoint(
    recipe: Recipe, engine: OpenAIEngineConfig, display: Display, out: RunFolder | None = None
) -> dict[str, Any]:
    """The summary of a model on a recipe's held-out tasks, with the tokens that the endpoint
    counted (`endpoint`) in place of those of an engine. All of it is kept in `out`.

    Raises ConfigError for an address that is none, a key that is not there, an environment that
    shows images, and where there are no tasks; RunStoppedError where too many episodes have no
    grade, as when the endpoint is down.
    """
    _check(engine)
    environment = environment_of(recipe)
    config = recipe.evaluation.model_copy(update={"prices": None})
    _check_environment(environment, config.best_of)
    tasks = choose_tasks(environment.tasks("heldout"), config.tasks, config.seed)
    if not tasks:
        raise ConfigError("there is nothing to evaluate: no held-out tasks, or evaluation.tasks=0")
    endpoint = ChatEndpoint(
        engine.url,
        f"the model {engine.model}",
        seconds=TURN_SECONDS,
        attempts=ATTEMPTS,
        key_variable=engine.key_variable,
    )
    model = ChatModel(endpoint, engine.model, {"temperature": config.temperature} | engine.request)
    runner = ChatRunner(
        environment,
        model,
        recipe.rollout,
        PrioritySemaphore(engine.max_concurrent_episodes or EPISODES),
        progress=lambda _: display.advance(),
    )
    display.phase("evaluation", config.episodes_per_task * len(tasks))
    groups, summary = event_loop.run(
        evaluate_policy(runner, tasks, config, f"evaluation/{EVALUATED}")
    )
    display.close()
    summary = _without_tokens(summary, recipe, model, engine)
    if out is not None:
        policy = f"{engine.model} at {engine.url}"
        kept = {EVALUATED: Evaluated(groups, summary)}
        write_evaluations(out, recipe, environment, kept, policy)
    return summary


def _without_tokens(
    summary: dict[str, Any], recipe: Recipe, model: ChatModel, engine: OpenAIEngineConfig
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
        "endpoint": {"url": engine.url, "model": engine.model, **asked},
    }


def _check(engine: OpenAIEngineConfig) -> None:
    for name in sorted(OWN & engine.request.keys()):
        raise ConfigError(f"engine.request.{name} is turnwise's own to say: leave it out")
    if "api_key" in engine.request:
        raise ConfigError("engine.request.api_key would be written down: give engine.key_variable")
    check_endpoint("engine", engine.url, engine.model, engine.key_variable)
    try:
        parts = httpx2.URL(engine.url)
    except httpx2.InvalidURL as error:
        raise ConfigError(f"engine.url: {error}") from None
    if parts.userinfo or parts.query:
        raise ConfigError("engine.url has a password or a query: give keys by engine.key_variable")


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
        environment.sandbox.find_tier()
