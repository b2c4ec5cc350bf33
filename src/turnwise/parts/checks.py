"""Checks that model and tokenizer can do what a run asks of them, before it begins.

What can be known without a model is checked earlier (`first_checks.py`).
"""

from collections.abc import Sequence

from turnwise.algorithms.algorithm import Algorithm
from turnwise.config import Recipe
from turnwise.errors import ConfigError
from turnwise.forward.prefix_trees import check_sharing
from turnwise.learning.signals.makers import Sources, check_signals, context_of
from turnwise.parts.components import Components
from turnwise.rollout.context import REQUEST
from turnwise.scaffolds.base import Scaffold
from turnwise.tokens import Source
from turnwise.types import Observation, Task


def check_parts(parts: Components, algorithm: Algorithm, tasks: Sequence[Task]) -> None:
    """Raise ConfigError where model or tokenizer lack what the recipe and its algorithm need;
    `tasks` are those of training, with their secrets."""
    recipe = parts.recipe
    _check_summary(recipe, parts.scaffold)
    if recipe.learning.share_prefixes:
        check_sharing(parts.model, recipe.rollout.max_tokens)
    if tasks:  # else nothing is learned, and no signal asked for
        given = parts.tokenizer, parts.scaffold, parts.environment.oracle, tasks
        check_signals(algorithm, Sources(recipe, *given, context_of(parts.model)))


def _check_summary(recipe: Recipe, scaffold: Scaffold) -> None:
    limits = recipe.rollout
    if limits.context != "summarise":
        return
    segments = scaffold.extend(Observation(REQUEST, Source.USER), ())
    longest = sum(len(segment.tokens) for segment in segments)
    needed = 4 * limits.max_turn_tokens + longest
    if limits.max_tokens < needed:
        raise ConfigError(
            f"rollout.context is summarise, and asking for a summary takes {longest} tokens: with "
            f"four turns of rollout.max_turn_tokens = {limits.max_turn_tokens} that is more than "
            f"rollout.max_tokens = {limits.max_tokens}; raise it to {needed}, or lower the other"
        )
