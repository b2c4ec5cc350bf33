"""The names that a recipe can use, by kind, each with a line that describes it."""

from turnwise.algorithms.registry import make_algorithm, table
from turnwise.config import Recipe, shipped_recipes
from turnwise.engines.registry import ENGINES
from turnwise.environments.registry import ENVIRONMENTS
from turnwise.scaffolds.registry import SCAFFOLDS
from turnwise.synthesis.demonstrations import BEHAVIOURS


def catalogue() -> dict[str, dict[str, str]]:
    """Kind -> name -> description. Loads no model."""
    return {
        "recipes": {name: _comment(path.read_text()) for name, path in shipped_recipes().items()},
        "environments": dict(sorted(ENVIRONMENTS.descriptions().items())),
        "algorithms": {str(row["name"]): str(row["source"]) for row in table()},
        "engines": ENGINES.descriptions(),
        "scaffolds": SCAFFOLDS.descriptions(),
        "behaviours": BEHAVIOURS.descriptions(),
    }


def check_names(recipe: Recipe) -> None:
    """Raise ConfigError for a name in a recipe that stands for nothing. Of a user's
    own code it loads the parts of the algorithm alone."""
    make_algorithm(recipe.algorithm.name, recipe.algorithm.overrides)
    ENGINES.check(recipe.engine.name)
    SCAFFOLDS.check(recipe.scaffold.name)
    ENVIRONMENTS.check(recipe.environment.name)


def _comment(text: str) -> str:
    return text.partition("\n")[0].lstrip("# ")
