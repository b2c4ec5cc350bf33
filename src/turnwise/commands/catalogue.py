"""The names that a recipe can use, by kind, each with a line that describes it."""

from turnwise.algorithms.registry import table
from turnwise.config import shipped_recipes
from turnwise.config.study import shipped_studies
from turnwise.engines.registry import ENGINES, WITHOUT_TOKENS
from turnwise.environments.registry import ENVIRONMENTS
from turnwise.scaffolds.registry import SCAFFOLDS
from turnwise.synthesis.demonstrations import BEHAVIOURS


def catalogue() -> dict[str, dict[str, str]]:
    """Kind -> name -> description. Loads no model."""
    return {
        "recipes": {name: _comment(path.read_text()) for name, path in shipped_recipes().items()},
        "studies": {name: _comment(path.read_text()) for name, path in shipped_studies().items()},
        "environments": dict(sorted(ENVIRONMENTS.descriptions().items())),
        "algorithms": {str(row["name"]): str(row["source"]) for row in table()},
        "engines": ENGINES.descriptions() | WITHOUT_TOKENS,
        "scaffolds": SCAFFOLDS.descriptions(),
        "behaviours": BEHAVIOURS.descriptions(),
    }


def _comment(text: str) -> str:
    return text.partition("\n")[0].lstrip("# ")
