"""The reward of a recipe, with the parts that models of the run measure."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from turnwise.algorithms.algorithm import Algorithm
from turnwise.algorithms.parts import Trait
from turnwise.config import Recipe
from turnwise.environments.base import Environment
from turnwise.errors import ConfigError, unknown_name
from turnwise.parts.reward_source import RewardSource
from turnwise.rewards.composition import Reward, make_reward
from turnwise.rewards.parts import CERTAINTY, RewardPart, Scope

if TYPE_CHECKING:
    from turnwise.learning.certainty import Certainty


def parts_of_models(
    recipe: Recipe,
    sources: Mapping[str, RewardSource] | None = None,
    certainty: "Certainty | None" = None,
) -> dict[str, RewardPart]:
    """The parts that models measure: those of wings, and the policy's certainty. Without the models
    they have the same ranges."""
    parts = dict(CERTAINTY if certainty is None else certainty.parts)
    for name, section in recipe.added().items():
        parts |= section.reward_parts(recipe) if sources is None or name not in sources else {}
    for source in (sources or {}).values():
        parts |= source.parts
    return parts


def reward_of(
    recipe: Recipe, algorithm: Algorithm, environment: Environment, models: Mapping[str, RewardPart]
) -> Reward | None:
    """The reward that a recipe puts together in place of the environment's, with parts that models
    measure; None where it does not. Raises ConfigError for what it gets wrong."""
    made = None
    if recipe.reward is not None:
        parts, turns, config = environment.spec.parts, recipe.rollout.max_turns, recipe.reward
        if algorithm.has_trait("estimator", Trait.NAMED_REWARDS):
            # It has weights of its own, of z-scores: what the sum here is counts for nothing.
            config = config.model_copy(update={"dominance": False})
        made = make_reward(config, parts, turns, models)
    _check_best_of(recipe, environment, made)
    _check_certainty(recipe, made)
    return made


def _check_certainty(recipe: Recipe, reward: Reward | None) -> None:
    """Raise ConfigError where the policy's certainty would be measured at another temperature than
    that of sampling."""
    used = {term.config.use or term.name for term in reward.terms} if reward is not None else set()
    if recipe.rollout.temperature_schedule is not None and used & CERTAINTY.keys():
        raise ConfigError(
            f"reward.parts has {', '.join(sorted(used & CERTAINTY.keys()))}, measured at one "
            "temperature, and rollout.temperature_schedule changes it: leave one of them out"
        )


def _check_best_of(recipe: Recipe, environment: Environment, reward: Reward | None) -> None:
    """Raise ConfigError where the best of k is to be chosen by a number that evaluations lack."""
    name = recipe.evaluation.best_of
    terms = reward.terms if reward is not None else ()
    measured = {term.name for term in terms if term.part.scope != Scope.GROUP}
    known = measured | environment.spec.parts.keys()
    if name and not known:
        raise ConfigError(
            f"evaluation.best_of is {name!r}, and no number of an episode is measured: name a part "
            "in [reward.parts], or leave best_of out"
        )
    if name and name not in known:
        raise ConfigError(
            f"{unknown_name('evaluation.best_of', name, known)}; parts of groups are not measured "
            "in evaluations"
        )
