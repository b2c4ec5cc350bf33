"""The page and the plot of `credit.py`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

Row = Mapping[str, Any]
NEGLIGIBLE = 0.1
"""Degrees: where an estimate has next to no noise, rounding alone is many standard errors."""


def biased(row: Row, limit: float) -> bool:
    """Whether the mean points elsewhere than the exact gradient."""
    return bool(row["z"] > limit and row["angle"] > NEGLIGIBLE)


def page(rows: Sequence[Row], limit: float) -> str:
    """A table: angles by task at the middle length, then what is summed up over tasks."""
    lengths, tasks = _values(rows, "turns"), _values(rows, "task")
    middle = sorted(lengths)[len(lengths) // 2]
    heads = [f"{task}, angle" for task in tasks] + ["length"]
    heads += [f"tokens at {turns}" for turns in sorted(lengths)] + ["learned"]
    lines = [["estimator", *heads], ["---"] * (len(heads) + 1)]
    for method in _values(rows, "method"):
        own = [row for row in rows if row["method"] == method]
        at = {row["task"]: row for row in own if row["turns"] == middle}
        angles = [_angle(at[task], limit) if task in at else "–" for task in tasks]
        length = f"{median(row['length'] for row in at.values()):.2f}" if at else "–"
        noise = [_noise([row for row in own if row["turns"] == turns]) for turns in sorted(lengths)]
        lines.append([method, *angles, length, *noise, _learned(own)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def draw(rows: Sequence[Row], limit: float, file: Path) -> None:
    """Noise by method, task and length, a cross where the direction is biased; what is learned."""
    methods, lengths = _values(rows, "method"), sorted(_values(rows, "turns"))
    columns = [(turns, task) for turns in lengths for task in _values(rows, "task")]
    noise, learned = np.full((2, len(methods), len(columns)), np.nan)
    figure = Figure(figsize=(16, 10), layout="constrained")
    axes = figure.subplots(
        1, 2, sharey=True, width_ratios=[len(columns), max(8, len(columns) // 3)]
    )
    for row in rows:
        y, x = methods.index(row["method"]), columns.index((row["turns"], row["task"]))
        noise[y, x], learned[y, x] = row["noise"], row.get("learned", np.nan)
        if biased(row, limit):
            axes[0].plot(x, y, "x", color="red", markersize=5)
    shown = [x for x in range(len(columns)) if not np.isnan(learned[:, x]).all()]
    norm = LogNorm(*np.nanpercentile(noise, (2, 98)))
    left = axes[0].imshow(noise, aspect="auto", cmap="viridis_r", norm=norm)
    figure.colorbar(left, ax=axes[0], label="sampled tokens until noise = signal")
    axes[0].set_title("noise; a red cross: the mean points elsewhere")
    axes[0].set_yticks(range(len(methods)), methods)
    _name(axes[0], columns)
    if shown:
        right = axes[1].imshow(learned[:, shown], aspect="auto", cmap="viridis", vmin=0, vmax=1)
        figure.colorbar(right, ax=axes[1], label="share of the possible gain")
        axes[1].set_title("learned from equally many tokens")
        _name(axes[1], [columns[x] for x in shown])
    figure.savefig(file, dpi=90)


def _name(axes: Any, columns: Sequence[tuple[int, str]]) -> None:
    names = [f"{task}, {turns}" for turns, task in columns]
    axes.set_xticks(range(len(columns)), names, rotation=90)


def _values(rows: Sequence[Row], key: str) -> list[Any]:
    return list(dict.fromkeys(row[key] for row in rows))


def _angle(row: Row, limit: float) -> str:
    """Degrees and their 95% interval; bold where biased."""
    if not biased(row, limit):
        return f"< {row['angle_high']:.1f}"
    return f"**{row['angle']:.0f}** ({row['angle_low']:.0f}–{row['angle_high']:.0f})"


def _noise(rows: Sequence[Row]) -> str:
    """The median over tasks, with that task's standard error."""
    if not rows:
        return "–"
    middle = sorted(rows, key=lambda row: row["noise"])[(len(rows) - 1) // 2]
    return f"{middle['noise']:,.0f} ± {1.96 * middle['noise_error']:,.0f}"


def _learned(rows: Sequence[Row]) -> str:
    """The mean over tasks and lengths, in percent."""
    known = [row for row in rows if "learned" in row]
    if not known:
        return "–"
    error = 1.96 * sum(row["learned_error"] ** 2 for row in known) ** 0.5 / len(known)
    return f"{fmean(row['learned'] for row in known):.0%} ± {error:.0%}"
