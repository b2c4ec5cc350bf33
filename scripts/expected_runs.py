"""Writes the figures of finished runs of a recipe, for `turnwise compare-runs RUN --expected`.

    for seed in 1 2 3 4 5 6 7 8; do turnwise train demo --run runs/band/$seed seed=$seed; done
    python -m scripts.expected_runs runs/band/* > src/turnwise/recipes/demo.expected.json

The runs differ in keys of the machine alone, such as the seed.
"""

import json
import sys
import tomllib
from pathlib import Path

from turnwise.config import dump_recipe, shipped_recipes
from turnwise.errors import DataError
from turnwise.evaluation.expected import facts, other_keys
from turnwise.storage.run_folder import RunFolder


def expected_text(runs: list[Path]) -> str:
    """The text of the file. Raises DataError for runs of several recipes, or not finished."""
    folders = [RunFolder.open(run) for run in runs]
    recipe = folders[0].recipe()
    for folder in folders:
        if keys := other_keys(folder.recipe(), recipe):
            raise DataError(f"{folder.path} and {runs[0]} differ in {', '.join(keys)}")
    found = sorted((facts(folder) for folder in folders), key=lambda one: one["seed"])
    text = dump_recipe(recipe)
    if recipe.name in (shipped := shipped_recipes()):
        text = text.replace(f"{shipped[recipe.name].parent}/", "")  # a path of this machine
    values = {"recipe": tomllib.loads(text), "runs": found}
    return json.dumps(values, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.stdout.write(expected_text([Path(run) for run in sys.argv[1:]]))
