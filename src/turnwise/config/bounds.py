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
    yield from _of_judge(recipe)
    yield from _of_reward_model(recipe)


def _of_episodes(recipe: "Recipe") -> Iterator[str]:
    engine, limits, chosen = recipe.engine, recipe.rollout, recipe.sft.demonstrations
    if isinstance(engine, EmbeddedEngineConfig) and (
        0 < engine.kv_cache_tokens < limits.max_tokens
    ):
        yield (
            f"engine.kv_cache_tokens is {engine.kv_cache_tokens}, but a single trajectory may have "
            f"rollout.max_tokens of {limits.max_tokens}: raise the one or lower the other"
        )
    if limits.temperature == 0 and (recipe.train.steps or recipe.preferences.steps):
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


def _of_judge(recipe: "Recipe") -> Iterator[str]:
    """A judge without a use, a use without a judge, and a call that outlasts a verdict."""
    rewards = "judge" in _used(recipe)
    pairs = recipe.preferences.by == "judge" and recipe.preferences.steps > 0
    if recipe.judge is None:
        if pairs:
            yield "preferences.by is 'judge', and there is no judge: describe one in [judge]"
        return
    if not (rewards or pairs):
        yield (
            "nothing asks the judge: name it in reward.parts, as in reward.parts.judge = 0.5, or "
            "set preferences.by=judge, or leave [judge] out"
        )
    if rewards and recipe.judge.seconds > recipe.rollout.max_seconds:
        yield (
            f"judge.seconds is {recipe.judge.seconds:g}, but all that is asked about an episode or "
            f"a group has rollout.max_seconds = {recipe.rollout.max_seconds:g}: lower the one or "
            "raise the other"
        )


def _of_reward_model(recipe: "Recipe") -> Iterator[str]:
    """A reward model without a use, and a use without one."""
    used = "reward_model" in _used(recipe)
    if recipe.reward_model is None and used:
        yield "the reward asks a reward model, and there is none: describe one in [reward_model]"
    if recipe.reward_model is not None and not used:
        yield (
            "nothing asks the reward model: name it in reward.parts, as in "
            "reward.parts.reward_model = 0.5 (a weight of 0 measures it alone), or leave "
            "[reward_model] out"
        )


def _used(recipe: "Recipe") -> set[str]:
    """The parts that the reward is made of."""
    return set() if recipe.reward is None else recipe.reward.used
