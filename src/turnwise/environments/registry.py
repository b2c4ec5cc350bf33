"""Environments by name: the built-in ones, and a user's own by file or module.

Listing loads none of them: each is imported when it is made.
"""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from turnwise.config import LatencyConfig, Recipe
from turnwise.environments.base import Environment
from turnwise.environments.derived import equipped, guarded, slow
from turnwise.errors import ConfigError
from turnwise.options import checked_options
from turnwise.registry import Registry, derives_from

ENVIRONMENTS: Registry[type[Environment]] = Registry(
    "environment", derives_from(Environment), "derive the class from Environment"
)
ENVIRONMENTS.register(
    "search",
    "turnwise.environments.search.environment:SearchEnvironment",
    "answer multi-hop questions by searching documents: Python's own, or yours",
)


def make_environment(
    name: str,
    options: Mapping[str, Any],
    consequential: Mapping[str, Any] = {},
    sandbox: Mapping[str, Any] = {},
    tools: Sequence[str] = (),
    latency: LatencyConfig | None = None,
) -> Environment:
    """Build the environment that a recipe names, with the recipe's further tools, its rules for
    consequential ones, its latency, and its table `sandbox` as the constructor's argument of that
    name.

    `name` is one that `ENVIRONMENTS` finds; `options` are arguments of its constructor. Raises
    ConfigError for what is not there or does not fit; an error inside the user's own file goes
    through.
    """
    kind = ENVIRONMENTS.get(name)
    if sandbox:
        if "sandbox" not in inspect.signature(kind).parameters or "sandbox" in options:
            raise ConfigError(
                f"environment {name} takes no table [sandbox]: remove it from the recipe"
            )
        options = {**options, "sandbox": sandbox}
    try:
        checked = checked_options(kind, options)
    except ConfigError as error:
        raise ConfigError(f"environment {name}: {error}") from None
    # Rules outermost: they hold for added tools too, and a call that is held back takes no time.
    return guarded(slow(equipped(kind(**checked), tools), latency), consequential)


def environment_of(recipe: Recipe) -> Environment:
    """The environment that a recipe names; raises as `make_environment`."""
    chosen = recipe.environment
    changes = chosen.consequential, recipe.sandbox, chosen.tools, chosen.latency
    return make_environment(chosen.name, chosen.options, *changes)
