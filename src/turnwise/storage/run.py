"""A run's folder for analysis: its numbers and trajectories as tables of pyarrow."""

from html import escape
from pathlib import Path
from typing import Any

import pyarrow as pa

from turnwise.config import Recipe
from turnwise.errors import MissingExtraError, unknown_name
from turnwise.storage.run_folder import RunFolder
from turnwise.storage.trajectory_rows import SCHEMA, read_table

PLOTTED = ("reward/mean", "rollout/success", "groups/all_equal", "policy/entropy")
"""The metrics that are drawn where none are named, as far as the run has them."""
LOGS = ("metrics", "timing", "validation", "cpt", "cold_start", "preferences", "imitation")


class Run:
    """A run's folder, for reading alone, be it finished or under way; `open_run` gives one.

    Tables are pyarrow's: `table.to_pandas()`, `polars.from_arrow(table)`,
    `datasets.Dataset.from_list(table.to_pylist())`.

    >>> turnwise.open_run(path).metrics().column_names[0]
    'step'
    """

    def __init__(self, path: str | Path) -> None:
        self._folder = RunFolder.open(Path(path))

    @property
    def path(self) -> Path:
        """Its folder."""
        return self._folder.path

    def recipe(self) -> Recipe:
        """The recipe, with every value spelled out."""
        return self._folder.recipe()

    def report(self) -> dict[str, Any]:
        """The report that `train` returned. Raises DataError before the run is finished."""
        return self._folder.report()

    def metrics(self, log: str = "metrics") -> pa.Table:
        """One row for each step, null for what a step did not measure; docs/reference/metrics.md
        has the columns. Other logs: timing, validation, cpt, cold_start, preferences, imitation.
        Raises ConfigError for none of them."""
        if log not in LOGS:
            raise unknown_name("log", log, LOGS)
        lines = self._folder.lines(f"{log}.jsonl")
        names = {name: None for line in lines for name in line}
        return pa.table({name: [line.get(name) for line in lines] for name in names})

    def plot(self, *names: str) -> Any:
        """Draw metrics over the steps of RL, a panel for each: a figure of matplotlib, which a
        notebook shows. Without names it is of reward, success, groups that are all equal, and
        entropy. ConfigError for a metric that the run has not, MissingExtraError for matplotlib."""
        try:
            from matplotlib.figure import Figure
        except ImportError:
            raise MissingExtraError("matplotlib", "plots") from None
        table = self.metrics()
        known = [name for name in table.column_names if name != "step"]
        for name in names:
            if name not in known:
                raise unknown_name("metric", name, known)
        chosen = names or [name for name in PLOTTED if name in known]
        figure = Figure(figsize=(3.2 * max(1, len(chosen)), 2.6), layout="constrained")
        for place, name in enumerate(chosen, 1):
            panel = figure.add_subplot(1, len(chosen), place)
            panel.plot(table["step"].to_pylist(), table[name].to_pylist(), marker=".")
            panel.set_title(name, fontsize="medium")
            panel.set_xlabel("step")
        return figure

    def _repr_html_(self) -> str:
        """The run in a notebook: the success of its evaluations with 95% intervals."""
        rows = "".join(
            f"<tr><th>{escape(name)}<td>{one['success']:.1%}"
            f"<td>{one['low']:.1%} to {one['high']:.1%}<td>{one['n']} episodes"
            for name, one in self._folder.evaluations().items()
            if one.get("success") is not None
        )
        return f"<table><caption>{escape(str(self.path))}</caption>{rows}</table>"

    def trajectories(self, step: int | str) -> pa.Table:
        """One row for each trajectory of an RL step, counted from 1, or of one of `recorded`
        (docs/how-to/run_folder.md has the columns). Raises ConfigError for one that there is
        not."""
        name = f"step-{step:06d}" if isinstance(step, int) else step
        if name not in self.recorded:
            raise unknown_name("step", name, self.recorded)
        file = self.path / "trajectories" / f"{name}.parquet"
        return read_table(file).select(SCHEMA.names)

    @property
    def recorded(self) -> list[str]:
        """The tables of trajectories, oldest first: `demonstrations`, `step-000001`, …."""
        return [file.stem for file in self._folder.trajectory_files()]
