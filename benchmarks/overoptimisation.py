"""A policy that is trained by a reward model alone: the model's reward and the true one over KL.

    .venv/bin/python benchmarks/overoptimisation.py --seeds 0 1 2 --out runs/overoptimisation

Questions and model of the recipe `search`, and a cold start that mostly guesses. A first run of RL
on the verifier's outcome gives the reward model its episodes; then RL begins again from the cold
start, with the reward model's number in place of the verifier's, frozen in one arm and updated
beside the policy in the other. The verifier's success is recorded and not trained on. Best-of-n by
the same model is measured beside it, at KL = log n - (n - 1) / n. Axes as in Gao et al. 2022 (arXiv
2210.10760). Runs that are finished are not repeated. Writes table.md, summary.json and curves.png.
"""

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from finished import finished_run
from matplotlib.figure import Figure

from turnwise.storage.checkpoint import latest
from turnwise.storage.run_folder import RunFolder

RECIPE = "search"
SEARCH = (
    "threads=1",
    "evaluation.base=false",
    "evaluation.sft=false",
    "monitor.echo_trap=off",
    f"environment.name={Path(__file__).with_name('search_alone.py')}:SearchAlone",
    "evaluation.temperature=1.0",  # that of training
)
COLD_START = (
    "train.steps=0",
    "sft.demonstrations.behaviours.faithful=0.15",
    "sft.demonstrations.behaviours.mistaken=0.25",
    "sft.demonstrations.behaviours.malformed=0.0",
    "sft.demonstrations.behaviours.guessing=0.6",
    "evaluation.tasks=300",
)
LEARNING = ("sft.steps=0", "train.tasks_per_step=8", "learning.learning_rate=1.5e-3")
DATA = ("algorithm.name=grpo", "train.steps=20", "evaluation.tasks=0")
"""The run whose episodes teach the reward model."""
BY_MODEL = (
    "algorithm.name=grpo",
    "algorithm.kl_coefficient=1e-6",  # measures the divergence, holds nothing back
    "train.steps=40",
    "reward.outcome=0",
    "reward.dominance=false",
    "reward.parts.reward_model=1",
    "reward_model.steps=200",
    "reward_model.learning_rate=3e-4",
    "evaluation.tasks=50",
    "evaluation.episodes_per_task=8",
    "evaluation.best_of=reward_model",
)
ARMS: dict[str, tuple[str, ...]] = {
    "frozen": (),
    "beside the policy": ("reward_model.beside_policy=true",),
}
SMOOTHED = 4
"""Steps over which curves are averaged."""


def main() -> None:
    """Run what is missing, then print the table of everything."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--arms", nargs="+", choices=list(ARMS), default=list(ARMS))
    parser.add_argument("--out", type=Path, default=Path("runs/overoptimisation"))
    parser.add_argument("overrides", nargs="*", help="key=value, for every run")
    arguments = parser.parse_args()
    found = {
        arm: [
            {"seed": seed, **measured(run(arm, seed, arguments.out, arguments.overrides))}
            for seed in arguments.seeds
        ]
        for arm in arguments.arms
    }
    table = markdown(found)
    (arguments.out / "summary.json").write_text(json.dumps(found, indent=1) + "\n")
    (arguments.out / "table.md").write_text(table)
    plot(found, arguments.out / "curves.png")
    print(table)


def run(arm: str, seed: int, out: Path, overrides: Sequence[str]) -> Path:
    """The folder of an arm's run, trained if it is not there."""
    common = [*SEARCH, *overrides, f"seed={seed}"]
    cold = finished_run(out / f"cold-{seed}", RECIPE, [*common, *COLD_START])
    weights = f"model.name={latest(cold / 'checkpoints' / 'cold_start')}"
    data = finished_run(out / f"data-{seed}", RECIPE, [*LEARNING, *common, *DATA, weights])
    folder = out / f"{arm.replace(' ', '-')}-{seed}"
    return finished_run(folder, RECIPE, [*settings(arm, data), *overrides, f"seed={seed}", weights])


def settings(arm: str, data: Path) -> list[str]:
    """The overrides of an arm but for its seed and its weights; `data` is the run that teaches the
    reward model."""
    return [*SEARCH, *LEARNING, *BY_MODEL, *ARMS[arm], f'reward_model.data=["{data}"]']


def measured(folder: Path) -> dict[str, Any]:
    """The curves of a run, and what was measured of its reward model and of best-of-n."""
    opened = RunFolder.open(folder)
    lines = list(opened.lines("metrics.jsonl"))
    cold, trained = (opened.evaluation(name) for name in ("cold_start", "trained"))
    assert cold is not None
    assert trained is not None
    best = {int(k): one["mean"] for k, one in cold["best@k"].items()}
    return {
        "reward_model": json.loads((folder / "reward_model.json").read_text()),
        "kl": smoothed([_episode_kl(line) for line in lines]),
        "by_model": smoothed([line["reward/parts/reward_model"] for line in lines]),
        "success": smoothed([line["rollout/success"] for line in lines]),
        "best_of": [[math.log(k) - (k - 1) / k, success] for k, success in best.items()],
        "heldout": [[one["success"], one["low"], one["high"]] for one in (cold, trained)],
        "heldout_by_model": [one["reward"] for one in (cold, trained)],
    }


def smoothed(numbers: Sequence[float]) -> list[float]:
    """Means over `SMOOTHED` steps, one for each."""
    starts = range(0, len(numbers), SMOOTHED)
    return [fmean(numbers[start : start + SMOOTHED]) for start in starts]


def _episode_kl(line: dict[str, Any]) -> float:
    """Divergence of an episode from the cold start, in nats, from that of trained tokens."""
    tokens = line["rollout/tokens_sampled"] / line["rollout/episodes"]
    return float(line["policy/kl_reference"] * tokens)


def markdown(found: dict[str, list[dict[str, Any]]]) -> str:
    """A line for each run: success where it begins, at its best, and in the end."""
    head = (
        "| reward model | seed | right about held-out episodes | success in training: begin, best, "
        "end | by the model: begin, end | KL in the end | held-out: cold start | trained | best of "
        "8 |\n|---|---|---|---|---|---|---|---|---|\n"
    )
    return head + "".join(
        f"| {arm} | {one['seed']} | {one['reward_model']['accuracy']:.1%}, ranks "
        f"{one['reward_model']['ranking']:.2f} | {one['success'][0]:.1%}, "
        f"{max(one['success']):.1%}, {one['success'][-1]:.1%} | {one['by_model'][0]:.2f}, "
        f"{one['by_model'][-1]:.2f} | {one['kl'][-1]:.1f} | {_rate(one['heldout'][0])} | "
        f"{_rate(one['heldout'][1])} | {one['best_of'][-1][1]:.1%} |\n"
        for arm, runs in found.items()
        for one in runs
    )


def plot(found: dict[str, list[dict[str, Any]]], file: Path) -> None:
    """Both rewards over the root of KL, a panel for each arm, a line for each seed."""
    figure = Figure(figsize=(3.2 * len(found), 2.7), layout="constrained")
    axes = figure.subplots(1, len(found), squeeze=False)[0]
    for axis, (arm, runs) in zip(axes, found.items(), strict=True):
        for number, one in enumerate(runs):
            roots = [math.sqrt(max(kl, 0.0)) for kl in one["kl"]]
            label = {} if number else {"label": "reward model"}
            axis.plot(roots, one["by_model"], "--", color="tab:orange", linewidth=1, **label)
            label = {} if number else {"label": "verifier (success)"}
            axis.plot(roots, one["success"], color="tab:blue", linewidth=1, **label)
            label = {} if number else {"label": "verifier, best of n"}
            points = [(math.sqrt(kl), success) for kl, success in one["best_of"]]
            axis.plot(*zip(*points, strict=True), "o", color="tab:green", markersize=3, **label)
        axis.set(title=f"reward model: {arm}", xlabel="root of KL from the cold start", ylim=(0, 1))
    axes[0].set_ylabel("mean over episodes")
    axes[0].legend(fontsize=8)
    figure.savefig(file, dpi=90)


def _rate(one: Sequence[float]) -> str:
    return f"{one[0]:.1%} ({one[1]:.1%} to {one[2]:.1%})"


if __name__ == "__main__":
    main()
