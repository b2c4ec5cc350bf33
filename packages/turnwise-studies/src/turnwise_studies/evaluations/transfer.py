"""A transfer matrix. A cell plays a run's newest weights and scaffold in the environment of a
recipe, within that recipe's budgets, on its held-out tasks."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from turnwise.config import Recipe, check_recipe, load_recipe
from turnwise.evaluation.policies import evaluate_recipe
from turnwise.monitor.display import Display
from turnwise.storage.run_folder import RunFolder

OF_ENVIRONMENT = ("environment", "sandbox", "rollout", "reward", "judge", "evaluation")
"""Sections that come with the environment; the others are the run's."""

Matrix = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""Summaries by run and environment."""


def transfer(
    runs: Sequence[Path], recipes: Sequence[str], overrides: Sequence[str], display: Display
) -> Matrix:
    """Evaluate each run in the environment of each recipe: names, files, or folders of runs, which
    overrides change. Raises ConfigError, before anything is played, for cells that make no
    recipe."""
    places = {named: _recipe(named, overrides) for named in recipes}
    cells = {
        str(run): {
            name: cell(RunFolder.open(run).recipe(), place) for name, place in places.items()
        }
        for run in runs
    }
    return {
        run: {name: evaluate_recipe(recipe, Path(run), display) for name, recipe in row.items()}
        for run, row in cells.items()
    }


def cell(run: Recipe, place: Recipe) -> Recipe:
    """The recipe of a run in the environment of another one."""
    values, others = run.model_dump(exclude_none=True), place.model_dump(exclude_none=True)
    for section in OF_ENVIRONMENT:
        values.pop(section, None)
        if section in others:
            values[section] = others[section]
    values["evaluation"].pop("during_rl", None)  # goes with the steps of the other's training
    values["preferences"].pop("by", None)  # goes with the run's own judge
    return check_recipe(values, f"{run.name} in the environment of {place.name}")


def _recipe(named: str, overrides: Sequence[str]) -> Recipe:
    file = Path(named) / "config.toml"
    return load_recipe(str(file) if file.is_file() else named, overrides)
