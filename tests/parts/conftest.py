"""The recipe that checks are about."""

import pytest

from tests.fakes import save_small_model
from tests.parts.recipes import RECIPE, Made
from turnwise.algorithms import Algorithm, make_algorithm
from turnwise.config import Recipe, load_recipe


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("checks")
    path = folder / "recipe.toml"
    path.write_text(RECIPE)
    model = save_small_model(folder / "model")

    def make(overrides: str) -> tuple[Recipe, Algorithm]:
        given = overrides.replace("{model}", str(model)).split()
        recipe = load_recipe(str(path), given)
        return recipe, make_algorithm(recipe.algorithm.name, recipe.algorithm.overrides)

    return make
