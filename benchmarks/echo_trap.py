"""The Echo Trap on purpose, two ways: StarPO until it collapses, StarPO-S from the same cold start.

    .venv/bin/python benchmarks/echo_trap.py --healthy 'runs/algorithms/*'

`haste`: the recipe's lake and cold start at four times its learning rate. Groups become all alike,
what is learned from the few others overshoots, and success follows.

`giving_up`: a lake where a move costs a little and giving up costs nothing. In groups that fail as
a whole the one that gives up first is the best, by hardly anything, which a z-score makes as much
as a success; StarPO-S does not train on such groups. The cold start gives up in 30% of its
demonstrations.

A run has collapsed at the first step at which its success, averaged over five steps, is half of the
highest such average before it. The warning is that of `turnwise.monitor.echo_trap`, looked for at
every step. Runs that are finished are not repeated. A warning in a healthy run (one that keeps its
success) is a false alarm; the folders given with --healthy are counted. Writes table.md,
summary.json and, for each trap, TRAP.png.
"""

import argparse
import glob
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from finished import finished_run
from matplotlib.figure import Figure

from turnwise.monitor.echo_trap import REWARD, SPREAD, Thresholds, averages, detect
from turnwise.storage.checkpoint import latest
from turnwise.storage.run_folder import RunFolder

ENTROPY = "algorithm.entropy_coefficient=0.001"
FORMS = {
    "starpo": ("algorithm.name=grpo", ENTROPY),
    "starpo_s": (
        "algorithm.name=grpo",
        ENTROPY,
        "algorithm.group_filter=top_spread",
        "algorithm.clip_high=0.28",
    ),
}
"""Without a critic and without a KL penalty, so that they differ in the filter and the clip alone;
the rows of these names have more (docs/reference/algorithms.md)."""
ALGORITHMS = tuple(FORMS)
RECIPE = "frozen_lake"
COMMON = ("monitor.echo_trap=off", "threads=1")
LAKE = ("environment.options.move_reward=-0.05", *COMMON)
GIVING_UP = (
    "sft.steps=40",
    "sft.learning_rate=1e-3",
    "sft.demonstrations.count=1200",
    "sft.demonstrations.behaviours.faithful=0.3",
    "sft.demonstrations.behaviours.astray=0.4",
    "sft.demonstrations.behaviours.guessing=0.3",
)
"""On top of the recipe's own cold start, in which nobody gives up."""
RL = ("sft.steps=0", "evaluation.tasks=100")
TRAPS = {
    "haste": (
        *COMMON,
        "train.steps=40",
        "learning.learning_rate=2e-3",
        "learning.share_prefixes=true",
    ),
    "giving_up": (*LAKE, "train.steps=35", "learning.learning_rate=5e-5"),
}
SUCCESS = "rollout/success"
WINDOW = Thresholds().window


def main() -> None:
    """Run what is missing, then print the table of everything."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--out", type=Path, default=Path("runs/echo_trap"))
    parser.add_argument("--healthy", nargs="*", default=[], help="patterns of run folders")
    parser.add_argument("overrides", nargs="*", help="key=value, for every run")
    arguments = parser.parse_args()
    rows = [
        {
            "trap": trap,
            "algorithm": name,
            "seed": seed,
            **judge(run(trap, name, seed, arguments.out, arguments.overrides)),
        }
        for trap in TRAPS
        for name in ALGORITHMS
        for seed in arguments.seeds
    ]
    found = sorted(path for pattern in arguments.healthy for path in glob.glob(pattern))
    others = [judge(Path(path)) for path in found if (Path(path) / "report.json").is_file()]
    healthy = [row for row in others if row["collapse"] is None]
    table = markdown(rows, healthy)
    summary = {"runs": rows, "healthy": healthy}
    (arguments.out / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    (arguments.out / "table.md").write_text(table)
    for trap in TRAPS:
        draw([row for row in rows if row["trap"] == trap], arguments.out, f"{trap}.png")
    print(table)


def cold_start(trap: str, out: Path) -> Path:
    """The weights that all runs of a trap begin with."""
    able = supervised(out / "lake", ())
    if trap == "haste":
        return able
    return supervised(out / "giving_up", (*LAKE, *GIVING_UP, f"model.name={able}"))


def supervised(folder: Path, chosen: Sequence[str]) -> Path:
    """The weights after a cold start of its own."""
    done = finished_run(folder, RECIPE, ["train.steps=0", "evaluation.tasks=1", *chosen])
    weights = latest(done / "checkpoints" / "cold_start")
    assert weights is not None
    return weights


def run(trap: str, name: str, seed: int, out: Path, overrides: Sequence[str]) -> Path:
    """The run's folder, trained if it is not there."""
    weights = f"model.name={cold_start(trap, out)}"
    chosen = [*RL, *TRAPS[trap], weights, *overrides, f"seed={seed}", *FORMS[name]]
    return finished_run(out / f"{trap}-{name}-{seed}", RECIPE, chosen)


def judge(folder: Path) -> dict[str, Any]:
    """Step of the warning and of the collapse, None where there was none; and the success."""
    lines = list(RunFolder.open(folder).lines("metrics.jsonl"))
    warned = (step for step in range(1, len(lines) + 1) if detect(lines[:step], 1.0, Thresholds()))
    success = averages([line[SUCCESS] for line in lines], WINDOW)
    falls = (
        place + WINDOW
        for place, rate in enumerate(success)
        if place and rate <= 0.5 * max(success[:place])
    )
    return {
        "folder": folder.name,
        "steps": len(lines),
        "warning": next(warned, None),
        "collapse": next(falls, None),
        "highest": max(success),
        "last": success[-1],
    }


def markdown(rows: Sequence[dict[str, Any]], healthy: Sequence[dict[str, Any]]) -> str:
    """One line a run, and the false alarms."""
    head = "| trap | algorithm | seed | highest success | last | collapse | warning | before |\n"
    head += "|---|---|---|---|---|---|---|---|\n"
    lines = [
        f"| {row['trap']} | {row['algorithm']} | {row['seed']} | {row['highest']:.0%} | "
        f"{row['last']:.0%} | "
        f"{row['collapse'] or 'none'} | {row['warning'] or 'none'} | {_lead(row)} |\n"
        for row in rows
    ]
    alarms = [row["folder"] for row in healthy if row["warning"] is not None]
    rate = f"\nFalse alarms: {len(alarms)} of {len(healthy)} healthy runs"
    return head + "".join(lines) + rate + (f" ({', '.join(alarms)})" if alarms else "") + "\n"


def draw(rows: Sequence[dict[str, Any]], out: Path, file: str) -> None:
    """Success, reward and spread by step: a column for each algorithm, a line for each seed."""
    figure = Figure(figsize=(10, 8), layout="constrained")
    grid = figure.subplots(3, len(ALGORITHMS), sharex=True, sharey="row", squeeze=False)
    for row in rows:
        name, column = row["algorithm"], ALGORITHMS.index(row["algorithm"])
        lines = list(RunFolder.open(out / row["folder"]).lines("metrics.jsonl"))
        for axes, metric in zip(grid[:, column], (SUCCESS, REWARD, SPREAD), strict=True):
            smooth = averages([line[metric] for line in lines], WINDOW)
            (line,) = axes.plot(
                range(WINDOW, WINDOW + len(smooth)), smooth, label=f"seed {row['seed']}"
            )
            if row["warning"]:
                axes.axvline(row["warning"], color=line.get_color(), linestyle=":")
            axes.set_ylabel(metric)
        grid[0, column].set_title(f"{name} (dotted: the warning)")
        grid[-1, column].set_xlabel(f"step, means of {WINDOW}")
    grid[0, 0].legend()
    figure.savefig(out / file, dpi=120)


def _lead(row: dict[str, Any]) -> str:
    if row["collapse"] is None or row["warning"] is None:
        return "–"
    return str(row["collapse"] - row["warning"])


if __name__ == "__main__":
    main()
