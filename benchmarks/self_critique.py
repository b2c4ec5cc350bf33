"""Self-critique beside a verifiable reward: what a rubric changes, whether success is lost by it,
and whether the critic stays right when it is refined on what the verifier knows.

    .venv/bin/python -m benchmarks.self_critique --seeds 0 1 2 --out runs/self_critique

After Kimi K2 (arXiv 2507.20534, section 3.2.2); the task is that of `self_critique_teacher.py`. The
base is `tiny_search` after supervised learning on scripted answers, right and wrong, plain and
long, and on judgements of such answers, so that it can judge at all. All arms begin with it. Runs
that are finished are not repeated. Writes base.json, summary.json, table.md and curves.png.
"""

import argparse
import asyncio
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from matplotlib.figure import Figure
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from benchmarks.finished import finished_run
from benchmarks.self_critique_teacher import (
    MAX_CHARACTERS,
    QUESTION,
    SCORES,
    TEMPLATE,
    Teacher,
    quality,
)
from turnwise.config import LearningConfig, ModelConfig, SftConfig
from turnwise.engines.embedded import EmbeddedEngine
from turnwise.errors import InfrastructureError
from turnwise.evaluation.intervals import wilson
from turnwise.evaluation.kept import read_played
from turnwise.evaluation.paired import compare
from turnwise.learning.sft import SupervisedLearner
from turnwise.models.load import load_model
from turnwise.monitor.echo_trap import averages
from turnwise.storage.checkpoint import latest
from turnwise.storage.run_folder import RunFolder
from turnwise.storage.trajectory_rows import read_rows
from turnwise.types import Trajectory
from turnwise_judges.base import MalformedReplyError
from turnwise_judges.models import EngineModel, Policy
from turnwise_judges.prompt import read_reply

MAX_TOKENS, REPLY = 700, 90
"""Of a trajectory, and of a reply."""
BASE = SftConfig(steps=300, batch_size=36, learning_rate=2e-3, warmup_steps=10)
BASE_EVERY = 100
"""Updates between two measurements of how well the base judges."""
JUDGED = 120
"""Held-out answers that it is measured on."""
STEPS, LEARNING_RATE = 36, 1e-3
WINDOW = 5
"""Steps over which curves are averaged."""
RECIPE = f'''
threads = 1
name = "self_critique"
[environment]
name = "{Path(__file__).with_name("self_critique_teacher.py").resolve()}:Kinds"
[scaffold]
name = "tags"
options = {{ instructions = "" }}
[engine]
max_sequences = 32
[rollout]
max_turns = 1
max_turn_tokens = 16
max_tokens = {MAX_TOKENS}
max_seconds = 300
[algorithm]
name = "rloo"
[learning]
learning_rate = {LEARNING_RATE}
share_prefixes = true
[train]
tasks_per_step = 6
group_size = 4
checkpoint_every = 10
[evaluation]
tasks = 300
temperature = 1.0
'''
CRITIQUE = (
    "judge.form=pointwise",
    "judge.low=0",
    "judge.high=1",
    "judge.model.kind=policy",
    f"judge.model.max_tokens={REPLY}",
    f"judge.question={QUESTION}",
    f"judge.max_characters={MAX_CHARACTERS}",
    "judge.seconds=300",
    "rollout.max_ungraded_share=0.5",
    "reward.parts.judge=0.5",
)
REFINED = ("judge.refinement.requests=8", "judge.refinement.replies=4")
ARMS: dict[str, tuple[str, ...]] = {
    "outcome": (),
    "outcome + critique": CRITIQUE,
    "outcome + critique, refined": (*CRITIQUE, *REFINED),
}


def base(out: Path) -> Path:
    """The folder of the model that all arms begin with, made if it is not there."""
    folder = out / "base"
    if (out / "base.json").is_file():
        return folder
    torch.set_num_threads(1)
    model, tokenizer = load_model(ModelConfig(name="tiny_search"))
    tokenizer.chat_template = TEMPLATE
    held_out = Teacher(tokenizer).episodes(JUDGED, "heldout", seed=1)
    found = []
    for updates, loss in _taught(model, tokenizer, folder, BASE, seed=0):
        if updates % BASE_EVERY == 0:
            measured = judged(model, tokenizer, held_out)
            found.append({"updates": updates, "loss": loss, **measured})
            print(found[-1], flush=True)
    (out / "base.json").write_text(json.dumps(found, indent=1) + "\n")
    return folder


def imitation(out: Path, weights: Path) -> Path:
    """The base after as many more updates on its own lessons."""
    folder = out / "imitation_weights"
    if not folder.is_dir():
        model, tokenizer = load_model(ModelConfig(name=str(weights)))
        config = BASE.model_copy(update={"steps": STEPS, "learning_rate": LEARNING_RATE})
        list(_taught(model, tokenizer, folder, config, seed=1))
    return folder


def _taught(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    folder: Path,
    config: SftConfig,
    seed: int,
) -> Iterator[tuple[int, float]]:
    """Train a model on lessons and save it in the end; gives the loss after each update."""
    lessons = Teacher(tokenizer).lessons(seed=0)
    learner = SupervisedLearner(model, lessons, config, LearningConfig(), seed=seed)
    while not learner.finished:
        loss = learner.step()["sft/loss"]
        yield learner.steps_done, loss
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def judged(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, episodes: Sequence[Trajectory]
) -> dict[str, Any]:
    """How well a model judges episodes, greedily: shares of those that it scores on the right side
    of the middle, of the right ones that it scores as it was taught, of malformed replies, and of
    scores above the middle."""
    judge = Teacher(tokenizer).judge
    engine = EmbeddedEngine(
        model.eval(), tokenizer, max_sequences=16, max_tokens=MAX_TOKENS, deterministic=True
    )
    asked = EngineModel(Policy(engine, tokenizer, lambda: ""), max_tokens=REPLY)

    async def score(episode: Trajectory) -> float | None:
        request = judge.request(episode)
        try:
            reply = await asked.complete(request.messages(0))
            return read_reply(reply.text, request.nonce(0), request.form)[0]
        except (MalformedReplyError, InfrastructureError):
            return None

    async def all_of_them() -> list[float | None]:
        found = list(await asyncio.gather(*map(score, episodes)))
        await engine.stop()
        return found

    scores = asyncio.run(all_of_them())
    both = [(value, *quality(one)) for value, one in zip(scores, episodes, strict=True)]
    read = [value for value in scores if value is not None]
    return {
        "wrong": _share(
            [value is not None and value <= 0.5 for value, right, _ in both if not right]
        ),
        "right": _share([value is not None and value > 0.5 for value, right, _ in both if right]),
        "rubric": _share([value == SCORES[right, plain] for value, right, plain in both if right]),
        "malformed": _share([value is None for value in scores]),
        "high": fmean(value > 0.5 for value in read) if read else None,
    }


def _share(hits: Sequence[bool]) -> list[float]:
    """A share with its 95% interval, and of how many."""
    return [fmean(hits), *wilson(sum(hits), len(hits)), len(hits)]


def main() -> None:
    """Make what is missing, then print the table of everything."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--arms", nargs="+", choices=list(ARMS), default=list(ARMS))
    parser.add_argument("--out", type=Path, default=Path("runs/self_critique"))
    parser.add_argument("--base", type=Path, help="a model that can judge; made if not given")
    parser.add_argument("overrides", nargs="*", help="key=value, for every run")
    arguments = parser.parse_args()
    out, overrides = arguments.out, arguments.overrides
    out.mkdir(parents=True, exist_ok=True)
    weights = arguments.base or base(out)
    begun = {"cold start": weights, "imitation": imitation(out, weights)}
    played = ["train.steps=0", "evaluation.base=true"]
    runs = {
        name: [run(out, name.replace(" ", "_"), folder, played)] for name, folder in begun.items()
    }
    runs |= {arm: [] for arm in arguments.arms}
    for seed in arguments.seeds:
        for arm in arguments.arms:
            name = f"{arm.replace(' + ', '_').replace(', ', '_')}-{seed}"
            chosen = [f"seed={seed}", f"train.steps={STEPS}", *ARMS[arm], *overrides]
            runs[arm].append(run(out, name, weights, chosen))
    rows = [measured(arm, folders, runs["outcome"]) for arm, folders in runs.items()]
    table = markdown(rows)
    (out / "summary.json").write_text(json.dumps(rows, indent=1) + "\n")
    (out / "table.md").write_text(table)
    plot({arm: runs[arm] for arm in arguments.arms}, out / "curves.png")
    print(table)


def run(out: Path, name: str, weights: Path, overrides: Sequence[str]) -> Path:
    """The folder of a run, begun or gone on with if it is not finished."""
    (out / "recipe.toml").write_text(RECIPE)
    chosen = [f"model.name={weights}", *overrides]
    return finished_run(out / name, str(out / "recipe.toml"), chosen)


def measured(arm: str, folders: Sequence[Path], outcome: Sequence[Path]) -> dict[str, Any]:
    """The figures of an arm, one for each seed: held-out, and of its judge in the end."""
    evaluations = [_evaluation(folder) for folder in folders]
    summaries = [
        RunFolder.open(folder).evaluation(name)
        for folder, name in zip(folders, evaluations, strict=True)
    ]
    found: dict[str, Any] = {
        "arm": arm,
        "success": [[one[key] for key in ("success", "low", "high")] for one in summaries if one],
        "plain": [_plain(*one) for one in zip(folders, evaluations, strict=True)],
        "judge": [_judge_of(folder) for folder in folders],
        "judging": [_malformed(folder) for folder in folders],
    }
    if arm in ARMS and arm != "outcome":
        pairs = zip(outcome, folders, strict=True)
        played = [
            (read_played(f"{one}@trained"), read_played(f"{two}@trained")) for one, two in pairs
        ]
        compared = [compare(*both) for both in played]
        found["difference"] = [
            [one.difference, one.low, one.high, one.detectable] for one in compared
        ]
    return found


def _evaluation(folder: Path) -> str:
    names = RunFolder.open(folder).evaluations()
    return "trained" if "trained" in names else next(iter(names))


def _plain(folder: Path, evaluation: str) -> float:
    """The share of held-out answers that are one word."""
    rows = read_rows(folder / "trajectories" / f"evaluation-{evaluation}.parquet")
    return fmean(json.loads(row["parts"])["plain"] for row in rows if row["parts"] != "{}")


def _judge_of(folder: Path) -> dict[str, Any]:
    """How well the last weights judge scripted pairs; kept beside the run."""
    kept = folder / "judged.json"
    if not kept.is_file():
        name = RunFolder.open(folder).recipe().model.name
        last = latest(folder / "checkpoints")
        model, tokenizer = load_model(ModelConfig(name=str(last or name)))
        episodes = Teacher(tokenizer).episodes(JUDGED, "heldout", seed=1)
        kept.write_text(json.dumps(judged(model, tokenizer, episodes)))
    return dict(json.loads(kept.read_text()))


def _malformed(folder: Path) -> float | None:
    """The share of malformed replies to the judge of the reward, of all steps; None without one."""
    lines = list(RunFolder.open(folder).lines("timing.jsonl"))
    calls = lines[-1].get("judge/calls") if lines else None
    return lines[-1]["judge/malformed"] / calls if calls else None


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    """A line for each arm, all seeds in it."""
    head = (
        "| arm | success, held-out | less outcome alone | detectable | one word, held-out | judge "
        "in the end: right ones found | wrong ones found | scored as taught, of right ones | "
        "malformed | malformed in training |\n"
        "|---|---|---|---|---|---|---|---|---|---|\n"
    )
    return head + "".join("| " + " | ".join(_cells(row)) + " |\n" for row in rows)


def _cells(row: dict[str, Any]) -> list[str]:
    differences = row.get("difference", [])
    return [
        row["arm"],
        "; ".join(map(_rate, row["success"])),
        "; ".join(
            f"{100 * mean:+.1f} ({100 * low:+.1f} – {100 * high:+.1f})"
            for mean, low, high, _ in differences
        ),
        "; ".join(f"{100 * detectable:.1f}" for *_, detectable in differences),
        "; ".join(f"{share:.0%}" for share in row["plain"]),
        *(
            "; ".join(_rate(one[key]) for one in row["judge"])
            for key in ("right", "wrong", "rubric", "malformed")
        ),
        "; ".join("–" if share is None else f"{share:.0%}" for share in row["judging"]),
    ]


def _rate(one: Sequence[float]) -> str:
    share, low, high = one[:3]
    return f"{share:.0%} ({low:.0%} – {high:.0%})"


def plot(runs: dict[str, list[Path]], file: Path) -> None:
    """Success, plain answers and the critic's accuracy by step: a colour for each arm, a line for
    each seed, means of WINDOW steps."""
    titles = {
        "rollout/success": "success",
        "reward/parts/plain": "answers of one word",
        "judge/refinement_accuracy": "replies of the critic that are right",
    }
    figure = Figure(figsize=(10, 3), layout="constrained")
    for axes, (metric, title) in zip(figure.subplots(1, 3), titles.items(), strict=True):
        for colour, (arm, folders) in enumerate(runs.items()):
            for number, folder in enumerate(folders):
                lines = RunFolder.open(folder).lines("metrics.jsonl")
                numbers = [line.get(metric, math.nan) for line in lines]
                smooth = averages(numbers, WINDOW)
                steps = range(WINDOW, WINDOW + len(smooth))
                axes.plot(steps, smooth, color=f"C{colour}", label=None if number else arm)
        axes.set(title=title, xlabel=f"step, means of {WINDOW}", ylim=(0, 1))
    figure.axes[1].legend(fontsize=7)
    figure.savefig(file, dpi=90)


if __name__ == "__main__":
    main()
