"""The names that a recipe can use, by kind, each with a line that describes it."""

from collections.abc import Mapping
from pathlib import Path

from turnwise.algorithms.registry import table
from turnwise.config import shipped_recipes
from turnwise.engines.registry import ENGINES, WITHOUT_TOKENS
from turnwise.environments.registry import ENVIRONMENTS
from turnwise.rollout.demonstrations import BEHAVIOURS
from turnwise.scaffolds.registry import SCAFFOLDS
from turnwise.wings import wings


def catalogue() -> dict[str, dict[str, str]]:
    """Kind -> name -> description. Loads no model."""
    return {
        "recipes": _first_lines(shipped_recipes()),
        "studies": _first_lines(wings().files("study")),
        "environments": dict(sorted(ENVIRONMENTS.descriptions().items())),
        "algorithms": {str(row["name"]): str(row["source"]) for row in table()},
        "engines": ENGINES.descriptions() | WITHOUT_TOKENS,
        "scaffolds": SCAFFOLDS.descriptions(),
        "behaviours": BEHAVIOURS.descriptions(),
    }


def _first_lines(files: Mapping[str, Path]) -> dict[str, str]:
    """The comment in the first line of each file."""
    lines = {name: path.read_text().partition("\n")[0] for name, path in files.items()}
    return {name: line.lstrip("# ") for name, line in lines.items()}
