"""The recipes of compared algorithms."""

from turnwise.algorithms.registry import SECTIONS, make_algorithm
from turnwise.commands.comparison import with_algorithm
from turnwise.config import AlgorithmConfig, load_recipe
from turnwise.training.algorithm_checks import check_algorithm_for_recipe, signal_tables


def test_settings_of_a_signal_are_for_the_algorithms_that_have_it() -> None:
    given = ["algorithm.critic=head", "algorithm.critic.clip=0.25"]
    found = {}
    for name in ("ppo", "grpo"):
        recipe = load_recipe("demo", with_algorithm("demo", given, name))
        check_algorithm_for_recipe(recipe, make_algorithm(name, recipe.algorithm.overrides))
        found[name] = recipe.algorithm.critic
    assert found["ppo"] is not None
    assert found["ppo"].clip == 0.25
    assert found["grpo"] is None


def test_a_part_that_brings_a_signal_keeps_its_settings() -> None:
    given = ["algorithm.estimator=token_gae", "algorithm.critic.clip=0.25"]
    recipe = load_recipe("demo", with_algorithm("demo", given, "grpo"))
    assert recipe.algorithm.critic is not None
    assert recipe.algorithm.critic.clip == 0.25


def test_the_tables_of_signals_are_those_of_a_recipe() -> None:
    """Three lists: what an algorithm may have, what a recipe may set, what errors propose."""
    tables = {key for key, field in AlgorithmConfig.model_fields.items() if field.default is None}
    assert set(signal_tables(make_algorithm("grpo", {}))) == tables == set(SECTIONS)
