"""One number of a run: of its report, of a series of its metrics, or of a user's own function."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from turnwise.config import Recipe
from turnwise.errors import ConfigError, DataError, unknown_name
from turnwise.evaluation.evaluate import summarise
from turnwise.monitor.echo_trap import averages
from turnwise.registry import load_function
from turnwise.storage.run_folder import POLICIES, RunFolder
from turnwise_studies.config import MetricConfig

WINDOW = 5
"""Steps over which a series is averaged, and over which the end of a run is."""
SUCCESS = "success"
RELIABILITY = (
    *("seconds", "latency", "cost", "pass@k", "pass^k", "best@k", "best_by"),
    *("step", "environment", "recovery"),
)
"""Keys that only some evaluations have."""
OWN = ("constant_answer", "seconds", "seed", "learning_signal")
"""Keys of a report that are no evaluations."""


@dataclass(frozen=True)
class Measured:
    value: float | None
    """None where the run has no such number, or did not reach the level."""
    low: float | None = None
    """The 95% interval, where the report has one."""
    high: float | None = None


def measure(name: str, metric: MetricConfig, path: Path) -> Measured:
    """Raises DataError for a function's result that is no number."""
    if metric.function:
        return Measured(_own(name, metric.function, path))
    folder = RunFolder.open(path)
    if metric.report:
        return _reported(metric.report, folder.report())
    values = series(folder, metric.series)
    return Measured(end_of(values) if metric.until is None else _cost(folder, metric, values))


def series(folder: RunFolder, name: str) -> list[float]:
    """A number of each RL step, NaN where it was not measured."""
    metrics, times = folder.lines("metrics.jsonl"), folder.lines("timing.jsonl")
    lines = times if any(name in line for line in times) else metrics
    return [line.get(name, math.nan) for line in lines]


def end_of(values: Sequence[float]) -> float | None:
    """Over the last WINDOW steps; None where nothing was measured."""
    found = [value for value in values[-WINDOW:] if not math.isnan(value)]
    return fmean(found) if found else None


def smoothed(values: Sequence[float]) -> list[float]:
    """For each step the mean of what was measured in the last WINDOW steps, fewer at first."""
    ends = [end_of(values[max(0, end - WINDOW) : end]) for end in range(1, len(values) + 1)]
    return [math.nan if end is None else end for end in ends]


def check_metrics(
    metrics: Mapping[str, MetricConfig],
    recipes: Sequence[Recipe],
    ablations: Callable[[], set[str]],
) -> None:
    """Raise ConfigError for a metric that no run of these recipes will have, as far as can be
    known; `ablations` gives names of evaluations."""
    for name, metric in metrics.items():
        where = f"metric {name!r}"
        if metric.function:
            load_function(metric.function, where)
        elif metric.series:
            if not any(recipe.train.steps for recipe in recipes):
                raise ConfigError(f"{where} is of RL steps, and no arm has train.steps above 0")
        else:
            _check_path(where, metric.report.split("."), recipes, ablations)


def _check_path(
    where: str, path: Sequence[str], recipes: Sequence[Recipe], ablations: Callable[[], set[str]]
) -> None:
    if path[0] in OWN:
        return
    left_out = {
        name
        for name in ("base", "sft")
        if not any(getattr(one.evaluation, name) for one in recipes)
    }
    known = set(POLICIES[:4]) - left_out
    if path[0] not in known:
        known |= ablations()
    if path[0] not in known:
        raise ConfigError(f"{where}: no arm has it: {unknown_name('part', path[0], known)}")
    if not any(recipe.evaluation.tasks for recipe in recipes):
        raise ConfigError(f"{where} is of an evaluation, and no arm has evaluation.tasks above 0")
    keys = [*summarise([]), *RELIABILITY]
    if [*path, ""][1] not in keys:
        raise ConfigError(f"{where}: no arm has it: {unknown_name('number', [*path, ''][1], keys)}")


def _reported(path: str, report: Mapping[str, Any]) -> Measured:
    *tables, leaf = path.split(".")
    part: Any = report
    for table in tables:
        part = part.get(table) if isinstance(part, Mapping) else None
    value = part.get(leaf) if isinstance(part, Mapping) else None
    if not isinstance(value, int | float) or not math.isfinite(value):
        return Measured(None)
    ends = (part.get("low"), part.get("high")) if leaf in (SUCCESS, "mean") else (None, None)
    return Measured(float(value), *ends)


def _own(name: str, target: str, path: Path) -> float | None:
    value = load_function(target, f"metric {name!r}")(path)
    if value is None or (isinstance(value, int | float) and math.isfinite(value)):
        return None if value is None else float(value)
    raise DataError(
        f"metric {name!r}: {target} gave {value!r} for {path}: give a finite number, or None"
    )


def _cost(folder: RunFolder, metric: MetricConfig, values: Sequence[float]) -> float | None:
    """Steps, or sampled tokens, until the mean of WINDOW steps reached the level."""
    assert metric.until is not None
    means = enumerate(averages(values, WINDOW), WINDOW)
    step = next((step for step, mean in means if mean >= metric.until), None)
    if step is None or metric.count == "steps":
        return None if step is None else float(step)
    lines = folder.lines("metrics.jsonl")[:step]
    return float(sum(line["rollout/tokens_sampled"] for line in lines))
