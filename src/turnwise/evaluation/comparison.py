"""Runs of several algorithms side by side: what they reached, and how soon.

Reads run folders only. Not here: the runs themselves (`cli.compare`).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from turnwise.errors import ConfigError
from turnwise.monitor.echo_trap import averages
from turnwise.storage.run_folder import RunFolder

WINDOW = 5
"""Steps over which training success is averaged."""


@dataclass(frozen=True)
class Row:
    """One algorithm over all seeds."""

    algorithm: str
    success: list[float]
    """Held-out success after RL, one for each seed."""
    cold_start: list[float]
    low: list[float]
    """95% Wilson intervals of the successes."""
    high: list[float]
    steps: list[int | None]
    """Until training success, averaged over WINDOW steps, reached the target; None: it did not."""
    tokens: list[float | None]
    """Sampled until then."""
    noise: list[float | None]
    """Variance of the gradient over the square of its mean, both summed over all steps in which
    they were measured; None where that was never, or found nothing but noise."""
    seconds: list[float]
    notes: list[str] = field(default_factory=list)
    """Remarks on the algorithm in these runs, in sentences."""


def compare(runs: Mapping[str, Sequence[Path]], target: float) -> list[Row]:
    """A row for each algorithm, from its finished runs; the best mean success first."""
    rows = [_row(name, [_read(path) for path in paths], target) for name, paths in runs.items()]
    return sorted(rows, key=lambda row: -fmean(row.success))


def markdown(rows: Sequence[Row], target: float) -> str:
    """The comparison as a table: all seeds, then their mean; below it the notes."""
    head = (
        "| algorithm | success by seed (95% interval) | mean | "
        f"steps to {target:.0%} | sampled tokens to {target:.0%} | gradient's noise | seconds |\n"
        "|---|---|---|---|---|---|---|\n"
    )
    table = head + "".join(
        f"| {row.algorithm} | {_intervals(row)} | {fmean(row.success):.1%} | "
        f"{_counts(row.steps)} | {_counts(row.tokens)} | {_noises(row.noise)} | "
        f"{fmean(row.seconds):.0f} |\n"
        for row in rows
    )
    return table + "".join(f"\n- {note}\n" for row in rows for note in row.notes)


def plot(runs: Mapping[str, Sequence[Path]], file: Path) -> None:
    """Training success by step, one line for each algorithm, the range of seeds around it.

    Raises ConfigError without matplotlib.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ConfigError("a plot needs matplotlib: pip install 'turnwise[plots]'") from None
    figure = Figure(figsize=(9, 5.5), layout="constrained")
    axes = figure.subplots()
    for name, paths in runs.items():
        curves = [_smoothed(_successes(RunFolder.open(path))) for path in paths]
        length = min(map(len, curves))
        rows = np.array([curve[:length] for curve in curves])
        steps, marker = range(1, length + 1), "o" if length < WINDOW else None
        (line,) = axes.plot(steps, rows.mean(0), label=name, marker=marker)
        band = {"alpha": 0.15, "color": line.get_color(), "linewidth": 0}
        axes.fill_between(steps, rows.min(0), rows.max(0), **band)
    axes.set(
        xlabel="step",
        ylabel=f"training success, mean of the last {WINDOW} steps, fewer at first",
        title="mean of the seeds, and their range",
        ylim=(0, 1),
    )
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    figure.savefig(file, dpi=130)


def _read(path: Path) -> tuple[RunFolder, dict[str, Any]]:
    folder = RunFolder.open(path)
    return folder, folder.report()


def _row(name: str, runs: Sequence[tuple[RunFolder, dict[str, Any]]], target: float) -> Row:
    reached = [_reached(folder, target) for folder, _ in runs]
    reports = [report for _, report in runs]
    return Row(
        algorithm=name,
        success=[report["trained"]["success"] for report in reports],
        cold_start=[report["cold_start"]["success"] for report in reports],
        low=[report["trained"]["low"] for report in reports],
        high=[report["trained"]["high"] for report in reports],
        steps=[step for step, _ in reached],
        tokens=[tokens for _, tokens in reached],
        noise=[_noise(folder) for folder, _ in runs],
        seconds=[report["seconds"] for report in reports],
    )


def _reached(folder: RunFolder, target: float) -> tuple[int | None, float | None]:
    lines = folder.lines("metrics.jsonl")
    for index, success in enumerate(averages(_successes(folder), WINDOW)):
        if success >= target:
            step = index + WINDOW
            return step, sum(line["rollout/tokens_sampled"] for line in lines[:step])
    return None, None


def _noise(folder: RunFolder) -> float | None:
    lines = [line for line in folder.lines("metrics.jsonl") if "policy/gradient_variance" in line]
    variance = sum(line["policy/gradient_variance"] for line in lines)
    signal = sum(line["policy/gradient_signal"] for line in lines)
    return variance / signal if signal > 0 else None


def _successes(folder: RunFolder) -> list[float]:
    """List the success of each step, NaN for a step without any grade."""
    return [line.get("rollout/success", math.nan) for line in folder.lines("metrics.jsonl")]


def _smoothed(successes: Sequence[float]) -> list[float]:
    """Give each step the mean of what was measured in the last WINDOW steps, NaN where nothing was.
    At first there are fewer steps: a short run has a curve as well."""
    ends = range(1, len(successes) + 1)
    windows = [successes[max(0, end - WINDOW) : end] for end in ends]
    measured = [[success for success in window if not math.isnan(success)] for window in windows]
    return [fmean(window) if window else math.nan for window in measured]


def _intervals(row: Row) -> str:
    return ", ".join(
        f"{success:.1%} ({low:.1%} – {high:.1%})"
        for success, low, high in zip(row.success, row.low, row.high, strict=True)
    )


def _noises(numbers: Sequence[float | None]) -> str:
    return ", ".join("not measured" if number is None else f"{number:.1f}" for number in numbers)


def _counts(numbers: Sequence[float | None]) -> str:
    return ", ".join("not reached" if number is None else f"{number:,.0f}" for number in numbers)
