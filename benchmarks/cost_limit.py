"""A cost with a multiplier against a fixed weight: whether the mean cost stays at its limit.

    .venv/bin/python benchmarks/cost_limit.py --seeds 0 1 2 --out runs/cost_limit

The demo's questions; the cost is an episode's search calls as a share of the four that are allowed,
and its limit is 0.8 calls, which is below what it takes to answer all questions. Arms: no cost, a
fixed weight, and the limit, whose multiplier rises while the mean is above it. All runs
begin with the same weights. Runs that are finished are not repeated, and one that was stopped goes
on. Writes table.md, summary.json and curves.png.
"""

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from arms import IMITATING, SEARCH, WINDOW, Study, at_the_end, by_seed, draw, panels, series

from turnwise.storage.run_folder import RunFolder

ALLOWED = 4
"""Calls of an episode at most: `rollout.max_tool_calls` of the demo."""
LIMIT = 0.8
"""Calls of an episode on average."""
MEASURE = f"use='budget', options={{calls={ALLOWED}, turns=1000}}"
"""The calls of an episode as a share of ALLOWED."""
MOVES = "multiplier=1.5, learning_rate=4.0, highest=4.0"
"""Where the multiplier begins, how fast and how far it goes."""
ARMS: dict[str, tuple[str, ...]] = {
    "no cost": (),
    "weight": (f"reward.parts.calls={{{MEASURE}, weight=-0.5}}",),
    "limit": (
        f"reward.costs.calls={{{MEASURE}, limit={LIMIT / ALLOWED:g}, {MOVES}}}",
        "reward.dominance=false",
    ),
}
STUDY = Study(
    "demo",
    (*SEARCH, "evaluation.tasks=150"),
    (
        *IMITATING,
        "sft.demonstrations.behaviours.faithful=0.6",
        "sft.demonstrations.behaviours.mistaken=0.4",
    ),
    (
        "algorithm.name=rloo",  # a z-score would make the smallest cost count as much as success
        "train.steps=26",
        "train.tasks_per_step=8",
        "learning.learning_rate=1.5e-3",
    ),
    ARMS,
)
CALLS, SUCCESS = "rollout/tool_calls", "rollout/success"
MULTIPLIER = "reward/multipliers/calls"


def main() -> None:
    """Run what is missing, then print the table of everything."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--arms", nargs="+", choices=list(ARMS), default=list(ARMS))
    parser.add_argument("--out", type=Path, default=Path("runs/cost_limit"))
    parser.add_argument("overrides", nargs="*", help="key=value, for every run")
    arguments = parser.parse_args()
    out = arguments.out
    runs = STUDY.runs(arguments.arms, arguments.seeds, out, arguments.overrides)
    rows = [{"arm": arm, **measured(folders)} for arm, folders in runs.items()]
    table = markdown(rows)
    (out / "summary.json").write_text(json.dumps(rows, indent=1) + "\n")
    (out / "table.md").write_text(table)
    plot(runs, out / "curves.png")
    print(table)


def measured(folders: Sequence[Path]) -> dict[str, list[Any]]:
    """The end of training and the held-out evaluation of an arm, one for each seed."""
    held_out = [RunFolder.open(folder).report()["trained"] for folder in folders]
    multipliers = [series(folder, MULTIPLIER)[-1] for folder in folders]
    return {
        "calls in all steps": [fmean(series(folder, CALLS)) for folder in folders],
        "calls at the end": [at_the_end(folder, CALLS) for folder in folders],
        "calls": [report["tool_calls"] for report in held_out],
        "success": [[report[name] for name in ("success", "low", "high")] for report in held_out],
        "multiplier": [None if math.isnan(last) else last for last in multipliers],
    }


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """A line for each arm, all seeds in it."""
    return (
        f"| arm | calls in training, all steps | last {WINDOW} steps | calls, held-out | "
        "success, held-out | last multiplier |\n|---|---|---|---|---|---|\n"
        + "".join(
            f"| {row['arm']} | {by_seed(row['calls in all steps'], '{:.2f}')} | "
            f"{by_seed(row['calls at the end'], '{:.2f}')} | "
            f"{by_seed(row['calls'], '{:.2f}')} | "
            + ", ".join(
                f"{rate:.0%} ({low:.0%} – {high:.0%})" for rate, low, high in row["success"]
            )
            + f" | {by_seed(row['multiplier'], '{:.2f}')} |\n"
            for row in rows
        )
    )


def plot(runs: Mapping[str, Sequence[Path]], file: Path) -> None:
    """Calls against the limit, the multiplier and success by step."""
    figure, grid = panels(3)
    for axes, (title, metric) in zip(
        grid,
        {"tool calls": CALLS, "multiplier": MULTIPLIER, "success": SUCCESS}.items(),
        strict=True,
    ):
        draw(axes, runs, metric, title)
    grid[0].axhline(LIMIT, color="black", linestyle=":")
    grid[0].legend()
    grid[2].set(ylim=(0, 1))
    figure.savefig(file, dpi=80)


if __name__ == "__main__":
    main()
