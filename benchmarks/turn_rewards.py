"""Rewards of turns on the search task: what they save, and one that is hacked.

    .venv/bin/python benchmarks/turn_rewards.py --seeds 0 1 2 --out runs/turn_rewards

The demo's questions and model, with a cold start that mostly guesses: RL has to find out that
searching pays. All arms of a seed begin with the same weights and differ in the algorithm and the
reward alone: the outcome, the outcome with the environment's `gain` less `repeats` for each turn,
IGPO's gain in the probability of the right answer, and a reward for each search call, which can
outvote success and is there to be hacked. Runs that are finished are not repeated, and one that was
stopped goes on. Writes table.md, summary.json and curves.png.

Gain, repeats and calls are those of the last five steps, an episode each: the environment reports
them whether they are rewarded or not.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

from arms import CPU, at_the_end, by_seed

from turnwise.commands.comparison import finished_run
from turnwise.evaluation.comparison import compare, plot
from turnwise.storage.checkpoint import latest

RECIPE = "demo"
COMMON = (*CPU, "evaluation.tasks=300")
GUESSING = (
    "train.steps=0",
    "sft.demonstrations.behaviours.faithful=0.15",
    "sft.demonstrations.behaviours.mistaken=0.25",
    "sft.demonstrations.behaviours.malformed=0.0",
    "sft.demonstrations.behaviours.guessing=0.6",
)
"""The cold start."""
LEARNING = (
    "sft.steps=0",
    "train.steps=60",
    "train.tasks_per_step=8",
    "learning.learning_rate=1.5e-3",
)
USEFUL = ("reward.parts.gain=0.4", "reward.parts.repeats=-0.05")
"""Success stays above failure whatever the turns are: 1 - 5 * 0.05 > 0.4."""
ARMS: dict[str, tuple[str, ...]] = {
    "grpo, outcome": ("algorithm.name=grpo",),
    "turn_rloo, outcome": ("algorithm.name=turn_rloo",),
    "turn_rloo, gain": ("algorithm.name=turn_rloo", *USEFUL),
    "mt_grpo, gain": ("algorithm.name=mt_grpo", *USEFUL),
    "igpo": ("algorithm.name=igpo",),
    "turn_rloo, calls": (
        "algorithm.name=turn_rloo",
        "reward.parts.calls=0.5",
        "reward.dominance=false",
    ),
}
MEASURED = ("reward/turn_parts/gain", "reward/turn_parts/repeats", "rollout/tool_calls")


def main() -> None:
    """Run what is missing, then print the table of everything."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--arms", nargs="+", choices=list(ARMS), default=list(ARMS))
    parser.add_argument("--target", type=float, default=0.5, help="success, for steps and tokens")
    parser.add_argument("--out", type=Path, default=Path("runs/turn_rewards"))
    parser.add_argument("overrides", nargs="*", help="key=value, for every run")
    arguments = parser.parse_args()
    out, overrides = arguments.out, arguments.overrides
    runs = {
        arm: [run(arm, seed, out, overrides) for seed in arguments.seeds] for arm in arguments.arms
    }
    rows = [
        {**asdict(row), **measured(runs[row.algorithm])} for row in compare(runs, arguments.target)
    ]
    table = markdown(rows, arguments.target)
    (out / "summary.json").write_text(json.dumps(rows, indent=1) + "\n")
    (out / "table.md").write_text(table)
    plot(runs, out / "curves.png")
    print(table)


def run(arm: str, seed: int, out: Path, overrides: Sequence[str]) -> Path:
    """The folder of an arm's run, trained if it is not there."""
    common = [*COMMON, *overrides, f"seed={seed}"]
    cold = finished_run(out / f"cold-{seed}", RECIPE, [*common, *GUESSING])
    weights = latest(cold / "checkpoints" / "cold_start")
    assert weights is not None
    folder = out / f"{arm.replace(', ', '-')}-{seed}"
    return finished_run(folder, RECIPE, [*settings(arm, common), f"model.name={weights}"])


def settings(arm: str, common: Sequence[str] = COMMON) -> list[str]:
    """The overrides of an arm but for its weights; those given on the command line come last."""
    return [*LEARNING, *ARMS[arm], *common]


def measured(folders: Sequence[Path]) -> dict[str, list[float]]:
    """What an arm's policies do in the end, one number for each seed."""
    return {name: [at_the_end(folder, name) for folder in folders] for name in MEASURED}


def markdown(rows: Sequence[dict[str, Any]], target: float) -> str:
    """A line for each arm, all seeds in it."""
    head = (
        f"| arm | held-out success by seed | mean | thousand tokens to {target:.0%} | gain | "
        "repeats | calls |\n|---|---|---|---|---|---|---|\n"
    )
    return head + "".join(
        f"| {row['algorithm']} | {by_seed(row['success'], '{:.1%}')} | "
        f"{fmean(row['success']):.1%} | "
        f"{by_seed([one and one / 1000 for one in row['tokens']], '{:.0f}')} | "
        + " | ".join(by_seed(row[name], "{:.2f}") for name in MEASURED)
        + " |\n"
        for row in rows
    )


if __name__ == "__main__":
    main()
