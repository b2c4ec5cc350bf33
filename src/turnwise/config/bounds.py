"""Numbers and uses of different sections that do not fit each other: one sentence for each.

Not here: what stands in one section (a type or a validator there), needs that another section
denies (its `claims`), and what depends on the algorithm (`parts/algorithm_checks.py`).
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from turnwise.config.engine import EmbeddedEngineConfig
from turnwise.config.learning import ScriptedDemonstrations

if TYPE_CHECKING:
    from turnwise.config.recipe import Recipe


def misfits(recipe: "Recipe") -> Iterator[str]:
    """Each misfit of a recipe, as a sentence that says what to do."""
    yield from _of_episodes(recipe)
    yield from _of_evaluation(recipe)


def _of_episodes(recipe: "Recipe") -> Iterator[str]:
    engine, limits, chosen = recipe.engine, recipe.rollout, recipe.sft.demonstrations
    if isinstance(engine, EmbeddedEngineConfig) and (
        0 < engine.kv_cache_tokens < limits.max_tokens
    ):
        yield (
            f"engine.kv_cache_tokens is {engine.kv_cache_tokens}, but a single trajectory may have "
            f"rollout.max_tokens of {limits.max_tokens}: raise the one or lower the other"
        )
    if limits.temperature == 0 and (recipe.train.steps or recipe.policy_updates):
        yield (
            "rollout.temperature is 0, and all trajectories of a group would be the same: give a "
            "value above 0"
        )
    if isinstance(chosen, ScriptedDemonstrations) and (chosen.turns or 0) > limits.max_turns:
        yield (
            f"sft.demonstrations.turns is {chosen.turns}, but an episode ends after "
            f"rollout.max_turns = {limits.max_turns}: lower the one, or leave it out"
        )


def _of_evaluation(recipe: "Recipe") -> Iterator[str]:
    during, every = recipe.evaluation.during_rl, recipe.train.checkpoint_every
    if recipe.evaluation.sft and not (recipe.sft.steps or recipe.train.steps):
        yield (
            "evaluation.sft imitates for as many updates as the run makes, and this one makes "
            "none: set it to false"
        )
    if during is None or during.every % every == 0:
        return
    rolls_back = recipe.monitor.echo_trap.reaction == "roll_back"
    for name, goes_back in (
        ("evaluation.during_rl.keep_best", during.keep_best),
        ("monitor.echo_trap.reaction = roll_back", rolls_back),
    ):
        if goes_back:
            yield (
                f"{name} needs a checkpoint of each step that is evaluated: make "
                f"evaluation.during_rl.every = {during.every} a multiple of "
                f"train.checkpoint_every = {every}"
            )
