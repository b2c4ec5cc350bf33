"""Ranges of the figures of the runs of a recipe that came with turnwise, and a run's place in them.

Their figures stand beside the recipe in NAME.expected.json, which `scripts/expected_runs.py` writes
from finished runs. A run outside of them learns otherwise, by more than bad luck explains.
"""

import json
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from turnwise.config import Recipe, check_recipe, dump_recipe, flattened, shipped_recipes
from turnwise.config.paths import anchored
from turnwise.errors import ConfigError, DataError
from turnwise.evaluation.intervals import student_t
from turnwise.storage.moves import MOVABLE
from turnwise.storage.run_folder import RunFolder

FEWEST = 3
"""Runs from which an interval can be made."""
RISK = 0.05
"""The probability that a run like the expected ones has any figure outside, were they normal."""
QUARTERS = 4
OF_MACHINE = {*MOVABLE, "name", "seed", "model.dtype", "learning.compute_dtype"}
"""Keys in which a run may differ and lie where the others do; beside `[cluster]`."""


@dataclass(frozen=True)
class Place:
    """A figure of a run, and the interval in which one more of the expected runs would have it."""

    figure: str
    value: float
    low: float
    high: float

    @property
    def inside(self) -> bool:
        return self.low <= self.value <= self.high


class ExpectedRuns(NamedTuple):
    """Runs of one recipe that differ in their seeds."""

    recipe: Recipe
    runs: Sequence[Mapping[str, Any]]
    """The `facts` of each."""


def read_expected(name: str) -> ExpectedRuns:
    """The runs that came with a recipe. Raises ConfigError for one without."""
    files = {
        recipe: file
        for recipe, path in shipped_recipes().items()
        if (file := path.with_name(f"{recipe}.expected.json")).is_file()
    }
    if name not in files:
        raise ConfigError(
            f"no runs of recipe {name!r} came with turnwise: give a run of {' or '.join(files)}"
        )
    return expected_of(files[name])


def expected_of(file: Path) -> ExpectedRuns:
    """The runs of a file. Raises DataError for fewer than `FEWEST`, and ConfigError for a recipe
    that is none any more."""
    found = json.loads(file.read_text(encoding="utf-8"))
    if len(found["runs"]) < FEWEST:
        raise DataError(f"{file} has {len(found['runs'])} runs: an interval needs {FEWEST} or more")
    recipe = check_recipe(anchored(found["recipe"], file.parent), str(file))
    return ExpectedRuns(recipe, found["runs"])


def facts(folder: RunFolder) -> dict[str, Any]:
    """A run's seed, what it was made with, and its figures by name: the success of each evaluation,
    and the mean reward of each quarter of RL. Raises DataError for a run that is not finished."""
    report = folder.report()
    made = report["statement"]
    evaluations = {k: one for k, one in report.items() if isinstance(one, dict) and "n" in one}
    figures = {f"success, {name}": one["success"] for name, one in evaluations.items()}
    lines = [line for line in folder.lines("metrics.jsonl") if "reward/mean" in line]
    for part in np.array_split(np.array(lines, dtype=object), QUARTERS):
        if len(part):
            steps = f"{part[0]['step']} – {part[-1]['step']}"
            figures[f"reward, steps {steps}"] = float(np.mean([one["reward/mean"] for one in part]))
    first: Mapping[str, Any] = next(iter(evaluations.values()), {})
    return {
        "seed": report["seed"],
        "made": f"{made['versions']}; {made['machine']}",
        "environment": first.get("environment"),
        "tasks": first.get("tasks"),
        "figures": figures,
    }


def places(folder: RunFolder, known: Mapping[str, Any], expected: ExpectedRuns) -> list[Place]:
    """Each figure of a run, of which the facts are known, with Student's prediction interval of one
    more of the n expected runs, mean ± t s sqrt(1 + 1/n), with Bonferroni's correction for the
    number of figures. For a success s is at least the binomial deviation of one run, of a share
    with a success and a failure more. Raises DataError for a run of another recipe."""
    own, name = known["figures"], expected.recipe.name
    if differing := other_keys(folder.recipe(), expected.recipe):
        raise DataError(
            f"{folder.path} is not comparable with the runs of {name} that came with turnwise: "
            f"its recipe has other {', '.join(differing)}"
        )
    count, figures = len(expected.runs), expected.runs[0]["figures"]
    quantile = student_t(1 - RISK / 2 / len(figures), count - 1) * math.sqrt(1 + 1 / count)
    if lacking := [figure for figure in figures if own.get(figure) is None]:
        raise DataError(f"{folder.path} has no {', no '.join(lacking)}")
    found = []
    for figure in figures:
        values = np.array([run["figures"][figure] for run in expected.runs])
        mean, spread, is_share = values.mean(), values.std(ddof=1), figure.startswith("success")
        if is_share:
            tasks = expected.runs[0]["tasks"]
            share = (mean * tasks + 1) / (tasks + 2)
            spread = max(spread, math.sqrt(share * (1 - share) / tasks))
        low, high = float(mean - quantile * spread), float(mean + quantile * spread)
        if is_share:
            low, high = max(0.0, low), min(1.0, high)
        found.append(Place(figure, own[figure], low, high))
    return found


def other_keys(recipe: Recipe, expected: Recipe) -> list[str]:
    """The keys in which two recipes differ, but for those of the machine."""
    one, two = (flattened(tomllib.loads(dump_recipe(each))) for each in (recipe, expected))
    return [
        key
        for key in sorted(one.keys() | two.keys())
        if one.get(key) != two.get(key) and key not in OF_MACHINE and not key.startswith("cluster.")
    ]
