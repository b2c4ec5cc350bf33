"""Names that a recipe gives, checked before anything heavy is imported; then threads are set.

Not here: whether what they stand for goes together (`first_checks.py`, `checks.py`).
"""

from turnwise.algorithms.registry import make_algorithm
from turnwise.config import Recipe
from turnwise.engines.registry import ENGINES, WITHOUT_TOKENS
from turnwise.environments.registry import ENVIRONMENTS
from turnwise.scaffolds.registry import SCAFFOLDS
from turnwise.threads import configure_threads


def configure(recipe: Recipe) -> None:
    """Refuse unknown names, before anything heavy is imported; then set the threads."""
    check_names(recipe)
    configure_threads(recipe.threads)


def check_names(recipe: Recipe) -> None:
    """Raise ConfigError for a name in a recipe that stands for nothing. Of a user's own code it
    loads the parts of the algorithm alone."""
    make_algorithm(recipe.algorithm.name, recipe.algorithm.overrides)
    if recipe.engine.name not in WITHOUT_TOKENS:
        ENGINES.check(recipe.engine.name)
    SCAFFOLDS.check(recipe.scaffold.name)
    ENVIRONMENTS.check(recipe.environment.name)
