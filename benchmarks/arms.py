"""Arms of a study: runs of one recipe that begin with the same cold start and differ in one thing.

Not here: which arms there are, and how a study reads their runs.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from turnwise.commands.comparison import finished_run
from turnwise.monitor.echo_trap import averages
from turnwise.storage.checkpoint import latest
from turnwise.storage.run_folder import RunFolder

WINDOW = 5
"""Steps over which curves are averaged, and over which the end of a run is."""
CPU = (
    "threads=1",
    "learning.compute_dtype=auto",  # in float32 everywhere, as the log's figures
    "evaluation.base=false",
    "evaluation.sft=false",
    "monitor.echo_trap=off",
)
"""Overrides of all studies."""
SEARCH = (
    *CPU,
    f"environment.name={Path(__file__).with_name('search_alone.py')}:SearchAlone",
    "evaluation.temperature=1.0",  # that of training
)
"""Overrides of studies on the demo's questions."""
IMITATING = (
    "model.name=tiny_search",
    "sft.steps=80",
    "sft.demonstrations.count=1600",
    "sft.demonstrations.behaviours.malformed=0.0",
)
"""A short cold start of a model that can search."""


@dataclass(frozen=True)
class Study:
    """A recipe, its cold start, and the arms. All but `recipe` are overrides, key=value.

    Seeds have the cold start in common, so that they differ in RL alone.
    """

    recipe: str
    common: tuple[str, ...]
    cold_start: tuple[str, ...]
    learning: tuple[str, ...]
    """Of all arms, after the cold start."""
    arms: Mapping[str, tuple[str, ...]]

    def settings(self, arm: str) -> list[str]:
        """The overrides of an arm but for its seed and its weights."""
        return ["sft.steps=0", *self.learning, *self.arms[arm], *self.common]

    def cold(self, out: Path, overrides: Sequence[str] = ()) -> Path:
        """The folder of the cold start, trained if it is not there."""
        chosen = [*self.common, *overrides, "train.steps=0", *self.cold_start]
        return finished_run(out / "cold", self.recipe, chosen)

    def run(self, arm: str, seed: int, out: Path, overrides: Sequence[str] = ()) -> Path:
        """The folder of an arm's run, trained if it is not there."""
        weights = latest(self.cold(out, overrides) / "checkpoints" / "cold_start")
        assert weights is not None
        chosen = [*self.settings(arm), *overrides, f"seed={seed}", f"model.name={weights}"]
        return finished_run(out / f"{arm.replace(' ', '_')}-{seed}", self.recipe, chosen)

    def runs(
        self, arms: Sequence[str], seeds: Sequence[int], out: Path, overrides: Sequence[str] = ()
    ) -> dict[str, list[Path]]:
        """The folders of these arms, for each the seeds in order. All arms of a seed come before
        the next one, so that a study which is stopped has whole seeds."""
        found: dict[str, list[Path]] = {arm: [] for arm in arms}
        for seed in seeds:
            for arm in arms:
                found[arm].append(self.run(arm, seed, out, overrides))
        return found


def series(folder: Path, metric: str) -> list[float]:
    """A metric of each step, NaN where it was not measured."""
    return [line.get(metric, math.nan) for line in RunFolder.open(folder).lines("metrics.jsonl")]


def at_the_end(folder: Path, metric: str) -> float:
    """The mean of a metric over the last WINDOW steps of a run, of those that have it."""
    return fmean(value for value in series(folder, metric)[-WINDOW:] if not math.isnan(value))


def by_seed(numbers: Sequence[float | None], form: str) -> str:
    """All seeds' numbers, for a table's cell."""
    return ", ".join("–" if number is None else form.format(number) for number in numbers)


def draw(axes: Axes, runs: Mapping[str, Sequence[Path]], metric: str, title: str) -> None:
    """Draw a metric: a colour for each arm, a line for each seed, averaged over WINDOW steps, with
    a gap where it was not measured in all of them."""
    for colour, (arm, folders) in enumerate(runs.items()):
        for seed, folder in enumerate(folders):
            smooth = averages(series(folder, metric), WINDOW)
            steps = range(WINDOW, WINDOW + len(smooth))
            axes.plot(steps, smooth, color=f"C{colour}", label=None if seed else arm)
    axes.set(title=title, xlabel=f"step, means of {WINDOW}")
    axes.xaxis.get_major_locator().set_params(integer=True)


def panels(count: int, rows: int = 1) -> tuple[Figure, list[Axes]]:
    """A small figure with so many panels a row, and all of its panels, row by row."""
    figure = Figure(figsize=(3.2 * count, 2.7 * rows), layout="constrained")
    return figure, list(figure.subplots(rows, count, squeeze=False).flat)
