"""Checks that the parts of a run work together, before anything is loaded or else before it begins.

Every check raises a ConfigError that says what to do. Not here: whether a recipe is well formed and
its sections go together (`config`), which parts of an algorithm go together
(`algorithms/claims.py`), and what an algorithm asks of a recipe (`algorithm_checks`).
"""

from collections.abc import Sequence

from turnwise.algorithms.parts import Requirement
from turnwise.algorithms.registry import Algorithm
from turnwise.config import Recipe
from turnwise.errors import ConfigError
from turnwise.forward.prefix_trees import check_sharing
from turnwise.learning.signals.hindsight import check_context
from turnwise.learning.signals.information_gain import check_answer
from turnwise.learning.signals.self_teacher import check_room
from turnwise.learning.signals.teacher import check_vocabulary
from turnwise.monitor.trackers import check_trackers
from turnwise.parts.algorithm_checks import check_algorithm_for_recipe
from turnwise.parts.components import Components
from turnwise.parts.first_checks import check_demonstrations, check_environment
from turnwise.rollout.context import REQUEST
from turnwise.scaffolds.base import Scaffold
from turnwise.tokens import Source
from turnwise.types import Observation, Task


def check_recipe_and_algorithm(recipe: Recipe, algorithm: Algorithm) -> None:
    """Raise ConfigError for what contradicts itself or would do nothing; loads nothing."""
    recipe.check_tokens()
    check_algorithm_for_recipe(recipe, algorithm)
    check_demonstrations(recipe, algorithm, fresh=False)
    check_trackers(recipe.monitor.trackers)


def check_parts(parts: Components, algorithm: Algorithm, tasks: Sequence[Task]) -> None:
    """Raise ConfigError where environment, model or tokenizer lack what the recipe and its
    algorithm need; `tasks` are those of training, with their secrets."""
    recipe = parts.recipe
    check_environment(recipe, parts.environment, parts.reward, algorithm, tasks)
    check_vocabulary(recipe, parts.tokenizer)
    _check_summary(recipe, parts.scaffold)
    if recipe.learning.share_prefixes:
        check_sharing(parts.model, recipe.rollout.max_tokens)
    context = getattr(parts.model.config.get_text_config(), "max_position_embeddings", None)
    if algorithm.self_teacher_coefficient:
        check_room(parts.scaffold, recipe.rollout.max_tokens, context)
    if Requirement.HINDSIGHT in algorithm.needs:
        check_context(parts.scaffold, recipe.rollout.max_tokens, context)
    if Requirement.INFORMATION_GAIN in algorithm.needs:
        oracle, longest = parts.environment.oracle, recipe.rollout.max_tokens
        check_answer(tasks[0], parts.scaffold, oracle, longest, context)


def _check_summary(recipe: Recipe, scaffold: Scaffold) -> None:
    """Summaries, whose request takes room as well."""
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
