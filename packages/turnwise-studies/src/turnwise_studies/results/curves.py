"""Series of a study's runs by step: their data as CSV, and a plot with a band over seeds."""

import csv
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from turnwise.errors import DataError
from turnwise.monitor.metrics import meanings
from turnwise.storage.run_folder import RunFolder
from turnwise_studies.results.figures import Folders
from turnwise_studies.results.measures import SUCCESS, WINDOW, series, smoothed

COLUMNS = ("series", "arm", "seed", "step", "value", f"mean_of_{WINDOW}")
PANELS_IN_A_ROW = 2
"""More would be too small to read."""
LINES = ("-", "--", "-.", ":")
"""Curves which are the same are all seen."""

Curves = dict[str, dict[str, dict[int, list[float]]]]
"""Values of each step, NaN where there is none, by series, arm and seed."""


def read_curves(names: Sequence[str], folders: Folders) -> Curves:
    """Raises DataError for a series that no run has, nor could have."""
    found = {
        name: {
            arm: {seed: series(RunFolder.open(path), name) for seed, path in by_seed.items()}
            for arm, by_seed in folders.items()
        }
        for name in names
    }
    for name, arms in found.items():
        values = [value for seeds in arms.values() for one in seeds.values() for value in one]
        if values and all(map(math.isnan, values)) and name not in meanings():
            raise DataError(f"curves: no run has {name!r}; see docs/reference/metrics.md")
    return found


def write_curves(curves: Curves, file: Path) -> None:
    """A line for each step of each run: its value, and the mean of the last WINDOW steps."""
    with file.open("w", encoding="utf-8", newline="") as output:
        writer = csv.writer(output, lineterminator="\n")
        writer.writerow(COLUMNS)
        for name, arms in curves.items():
            for arm, by_seed in arms.items():
                for seed, values in by_seed.items():
                    for step, pair in enumerate(zip(values, smoothed(values), strict=True), 1):
                        cells = ("" if math.isnan(value) else f"{value:.6g}" for value in pair)
                        writer.writerow((name, arm, seed, step, *cells))


def band(by_seed: Mapping[int, Sequence[float]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean, least and highest over seeds at each step that all of them made: float64[steps]
    each."""
    rows = [smoothed(values) for values in by_seed.values()]
    length = min(map(len, rows))
    table = np.array([row[:length] for row in rows])
    return table.mean(0), table.min(0), table.max(0)


def draw_curves(curves: Curves, file: Path) -> None:
    from matplotlib.figure import Figure

    across = min(len(curves), PANELS_IN_A_ROW)
    down = math.ceil(len(curves) / across)
    figure = Figure(figsize=(1.5 + 4.2 * across, 3.4 * down), layout="constrained")
    panels: list[Any] = [
        figure.add_subplot(down, across, place) for place in range(1, len(curves) + 1)
    ]
    for axes, (name, arms) in zip(panels, curves.items(), strict=True):
        for number, (arm, by_seed) in enumerate(arms.items()):
            _draw(axes, arm, number, by_seed)
        axes.set(title=name, xlabel="step")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(alpha=0.3)
        if name.endswith(f"/{SUCCESS}"):
            axes.set(ylim=(-0.02, 1.02))  # a line at 0 or 1 is not cut in half
    labelled = {
        label: handle
        for axes in panels
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(labelled.values(), labelled, loc="outside right upper")
    figure.supxlabel(f"means of {WINDOW} steps; line: mean of the seeds, band: their range", size=8)
    figure.savefig(file, dpi=110)


def _draw(axes: Any, arm: str, number: int, by_seed: Mapping[int, Sequence[float]]) -> None:
    """Draw an arm, unless it has nothing of the series."""
    middle, low, high = band(by_seed)
    if np.isnan(middle).all():
        return
    steps = np.arange(1, len(middle) + 1)
    color, line = f"C{number}", LINES[number % len(LINES)]
    # A line of one step, which smallest forms have, would not be seen.
    marker = "o" if len(middle) < WINDOW else None
    axes.plot(steps, middle, line, label=arm, color=color, marker=marker)
    axes.fill_between(steps, low, high, alpha=0.15, color=color, linewidth=0)
