"""The arms of the study of turns' rewards: what they ask for can be had, and one can be hacked."""

import pytest
from turn_rewards import ARMS, MEASURED, RECIPE, markdown, settings

from tests.environments.playing import opened
from turnwise.algorithms.registry import make_algorithm
from turnwise.config import load_recipe
from turnwise.errors import ConfigError
from turnwise.rewards.composition import make_reward
from turnwise.training.algorithm_checks import (
    check_algorithm_for_environment,
    check_algorithm_for_recipe,
)


@pytest.mark.parametrize("arm", ARMS)
def test_an_arm_is_a_recipe_that_can_run(arm: str) -> None:
    (environment,) = opened("search", {"tasks": {"inverse": False}})
    recipe = load_recipe(RECIPE, settings(arm))
    algorithm = make_algorithm(recipe.algorithm.name, recipe.algorithm.overrides)
    check_algorithm_for_recipe(recipe, algorithm)
    reward = None
    if recipe.reward is not None:
        reward = make_reward(recipe.reward, environment.spec.parts, recipe.rollout.max_turns)
        assert reward.of_turns
    check_algorithm_for_environment(algorithm, environment, reward)


def test_only_the_reward_for_calls_can_outvote_success() -> None:
    (environment,) = opened("search", {"tasks": {"inverse": False}})
    recipe = load_recipe(RECIPE, [*settings("turn_rloo, calls"), "reward.dominance=true"])
    assert recipe.reward is not None
    with pytest.raises(ConfigError, match="outvote"):
        make_reward(recipe.reward, environment.spec.parts, recipe.rollout.max_turns)


def test_the_table_has_every_seed() -> None:
    row = {"algorithm": "grpo, outcome", "success": [0.5, 0.7], "tokens": [20_000.0, None]}
    table = markdown([{**row, **{name: [0.25, 1.0] for name in MEASURED}}], 0.6)
    assert "| 50.0%, 70.0% | 60.0% | 20, – | 0.25, 1.00 |" in table
