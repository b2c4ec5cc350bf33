"""The majority of a group as the only reward (TTRL, arXiv 2504.16084): gain, and lock-in.

    .venv/bin/python benchmarks/majority.py --seeds 0 1 2 --out runs/majority

The demo's questions, from two cold starts: one is mostly faithful, so that the answer which most of
a group give is mostly right; the other mostly answers with the name it looked up last, so that they
agree on what is wrong. From each, the majority is rewarded (the verifier's success is recorded and
counts nothing), or the outcome. All runs from one begin with the same weights. Runs that are
finished are not repeated, and one that was stopped goes on. Writes table.md, summary.json and
curves.png.

Held-out tasks are played in groups of eight at the temperature of training. A task is among those
whose majority was wrong if an evaluation of the cold start found it so; the cold start's own row is
of another evaluation, so that its chance is not chosen by.
"""

import argparse
import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from arms import IMITATING, SEARCH, Study, by_seed, draw, panels

from turnwise import open_run
from turnwise.evaluation.intervals import clustered
from turnwise.rewards.answer import normalise

LEARNING = ("train.steps=20", "train.tasks_per_step=8", "learning.learning_rate=1.5e-3")
ARMS = {
    "majority": ("reward.outcome=0", "reward.dominance=false", "reward.parts.majority=1"),
    "outcome": ("reward.parts.majority={weight=0.0}",),
}
"""The outcome's arm measures the majority too, with a weight of 0."""
FAITHFUL = {"mostly faithful": 0.6, "mostly mistaken": 0.3}
"""The share of faithful demonstrations of each cold start; the others are mistaken."""
GROUPS = ("evaluation.tasks=60", "evaluation.episodes_per_task=8")
STUDIES = {
    cold: Study(
        "demo",
        (*SEARCH, *GROUPS),
        (
            *IMITATING,
            f"sft.demonstrations.behaviours.faithful={share}",
            f"sft.demonstrations.behaviours.mistaken={1 - share:g}",
        ),
        LEARNING,
        ARMS,
    )
    for cold, share in FAITHFUL.items()
}
PANELS = {
    "true success": "rollout/success",
    "share of the group in the majority": "reward/parts/majority",
    "policy's entropy, nats": "policy/entropy",
}


@dataclass(frozen=True)
class Votes:
    """A task's episodes in one evaluation."""

    successes: int
    episodes: int
    agreement: float
    """Share of the episodes that gave the most frequent answer."""
    answers: int
    """Distinct answers."""
    right: bool
    """Whether the most frequent answer is a success."""


def main() -> None:
    """Run what is missing, then print the table of everything."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--out", type=Path, default=Path("runs/majority"))
    parser.add_argument("overrides", nargs="*", help="key=value, for every run")
    arguments = parser.parse_args()
    out, seeds, overrides = arguments.out, arguments.seeds, arguments.overrides
    places = {cold: out / cold.replace(" ", "_") for cold in STUDIES}
    folders = {
        cold: study.runs(list(ARMS), seeds, places[cold], overrides)
        for cold, study in STUDIES.items()
    }
    rows = []
    for cold, study in STUDIES.items():
        begun = study.cold(places[cold], overrides)
        before = votes_of(begun, "cold_start")
        for arm, paths in {"nothing trained": [begun], **folders[cold]}.items():
            after = [votes_of(folder, "trained") for folder in paths]
            rows.append({"cold start": cold, "arm": arm, **judged(before, after)})
    table = markdown(rows)
    (out / "summary.json").write_text(json.dumps(rows, indent=1) + "\n")
    (out / "table.md").write_text(table)
    plot(folders, out / "curves.png")
    print(table)


def votes_of(folder: Path, evaluation: str) -> dict[str, Votes]:
    """The votes on each held-out task in an evaluation of a run."""
    episodes: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for episode in open_run(folder).trajectories(f"evaluation-{evaluation}").to_pylist():
        episodes[episode["task"]].append(episode)
    return {task: vote(found) for task, found in episodes.items()}


def vote(episodes: Sequence[Mapping[str, Any]]) -> Votes:
    """The votes of a task's episodes, which have an `answer` and a `success` each.

    Of answers with equally many votes the first one wins, as in the reward.
    """
    answers = [normalise(episode["answer"] or "") for episode in episodes]
    counts = Counter(answer for answer in answers if answer)
    first = max(counts, key=lambda answer: counts[answer], default="")
    won = [bool(episode["success"]) for episode in episodes]
    right = any(success for answer, success in zip(answers, won, strict=True) if answer == first)
    return Votes(
        sum(won), len(episodes), counts[first] / len(episodes), len(counts), bool(first) and right
    )


def judged(
    before: Mapping[str, Votes], after: Sequence[Mapping[str, Votes]]
) -> dict[str, list[Any]]:
    """The figures of an arm after training, one for each seed, split by the majority before."""
    figures = [_judged(before, votes) for votes in after]
    return {name: [figure[name] for figure in figures] for name in figures[0]}


def _judged(before: Mapping[str, Votes], after: Mapping[str, Votes]) -> dict[str, Any]:
    wrong = [votes for task, votes in after.items() if not before[task].right]
    right = [votes for task, votes in after.items() if before[task].right]
    every = [*wrong, *right]
    return {
        "success": success(every),
        "majority was right": success(right),
        "majority was wrong": success(wrong),
        "tasks whose majority was wrong": len(wrong),
        "agreement": fmean(votes.agreement for votes in every),
        "agreement where it was wrong": fmean(votes.agreement for votes in wrong),
        "answers": fmean(votes.answers for votes in every),
    }


def success(tasks: Sequence[Votes]) -> list[float]:
    """The rate of success and its 95% interval, clustered by task: [rate, low, high]."""
    sums, counts = [one.successes for one in tasks], [one.episodes for one in tasks]
    return [sum(sums) / sum(counts), *clustered(sums, counts)]


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """A line for each arm, all seeds in it."""
    return (
        "| cold start | arm | success by seed | where the majority was right | "
        "where it was wrong | agreement | where it was wrong | distinct answers |\n"
        "|---|---|---|---|---|---|---|---|\n"
        + "".join(
            f"| {row['cold start']} | {row['arm']} | {_rates(row['success'])} | "
            f"{_rates(row['majority was right'])} | {_rates(row['majority was wrong'])} | "
            f"{by_seed(row['agreement'], '{:.2f}')} | "
            f"{by_seed(row['agreement where it was wrong'], '{:.2f}')} | "
            f"{by_seed(row['answers'], '{:.1f}')} |\n"
            for row in rows
        )
    )


def plot(folders: Mapping[str, Mapping[str, Sequence[Path]]], file: Path) -> None:
    """Success, agreement and entropy in training by step; a row for each cold start."""
    figure, grid = panels(len(PANELS), rows=len(folders))
    places = iter(grid)
    for cold, runs in folders.items():
        for title, metric in PANELS.items():
            axes = next(places)
            draw(axes, runs, metric, title)
            if metric == "rollout/success":
                axes.set(ylabel=cold, ylim=(0, 1))
                axes.legend()
    figure.savefig(file, dpi=64)


def _rates(rates: Sequence[Sequence[float]]) -> str:
    return ", ".join(f"{rate:.0%} ({low:.0%} – {high:.0%})" for rate, low, high in rates)


if __name__ == "__main__":
    main()
