"""What a recipe can name, by kind, each with a line that says what it is."""

import sys

from turnwise.algorithms.registry import make_algorithm, table
from turnwise.config import Recipe, shipped_recipes
from turnwise.engines.registry import ENGINES
from turnwise.environments.registry import ENVIRONMENTS, environment_names
from turnwise.errors import unknown_name
from turnwise.scaffolds.registry import SCAFFOLDS
from turnwise.synthesis.demonstrations import BEHAVIOURS


def catalogue() -> dict[str, dict[str, str]]:
    """Kind -> name -> description. Loads no model."""
    return {
        "recipes": {name: _comment(path.read_text()) for name, path in shipped_recipes().items()},
        "environments": environment_names(),
        "algorithms": {str(row["name"]): str(row["source"]) for row in table()},
        "engines": dict(ENGINES),
        "scaffolds": {name: _module_line(kind.__module__) for name, kind in SCAFFOLDS.items()},
        "behaviours": {name: str(rule.__doc__) for name, rule in BEHAVIOURS.items()},
    }


def check_names(recipe: Recipe) -> None:
    """Raise ConfigError for a name in a recipe that stands for nothing. Loads no torch, nor a
    user's own file."""
    make_algorithm(recipe.algorithm.name, recipe.algorithm.overrides)
    for kind, name, known in (
        ("engine", recipe.engine.name, ENGINES),
        ("scaffold", recipe.scaffold.name, SCAFFOLDS),
        ("environment", recipe.environment.name, ENVIRONMENTS),
    ):
        if name not in known and ":" not in name:
            raise unknown_name(kind, name, known)


def _comment(text: str) -> str:
    return text.partition("\n")[0].lstrip("# ")


def _module_line(module: str) -> str:
    return (sys.modules[module].__doc__ or "").partition("\n")[0]
