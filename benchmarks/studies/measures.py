"""Measures of the studies beside this file: functions from a run's folder to a number.

Votes are those on held-out tasks that are played several times. A task's majority was right if the
most frequent answer of the evaluation before RL is a success.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from turnwise import open_run
from turnwise.rewards.answer import normalise

LIMIT = 0.8
"""Calls of an episode on average, in `cost_limit.toml`."""
WINDOW = 5


@dataclass(frozen=True)
class Votes:
    """A task's episodes in one evaluation."""

    success: float
    agreement: float
    """Share of the episodes that gave the most frequent answer."""
    answers: int
    """Distinct answers."""
    right: bool
    """Whether the most frequent answer is a success."""


def distance_from_limit(folder: Path) -> float:
    """How far the mean number of calls of the last steps is from the limit."""
    calls = open_run(folder).metrics().column("rollout/tool_calls").to_pylist()
    return abs(fmean(calls[-WINDOW:]) - LIMIT)


def success_where_right(folder: Path) -> float | None:
    """Success after training on the tasks whose majority was right before."""
    return _mean(one.success for one in _after(folder, right=True))


def success_where_wrong(folder: Path) -> float | None:
    """Success after training on the tasks whose majority was wrong before."""
    return _mean(one.success for one in _after(folder, right=False))


def agreement(folder: Path) -> float | None:
    """Agreement after training on all tasks."""
    return _mean(one.agreement for one in votes_of(folder, "trained").values())


def agreement_where_wrong(folder: Path) -> float | None:
    """Agreement after training on the tasks whose majority was wrong before."""
    return _mean(one.agreement for one in _after(folder, right=False))


def answers(folder: Path) -> float | None:
    """Distinct answers of a task after training."""
    return _mean(one.answers for one in votes_of(folder, "trained").values())


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
    given = [normalise(episode["answer"] or "") for episode in episodes]
    counts = Counter(answer for answer in given if answer)
    first = max(counts, key=lambda answer: counts[answer], default="")
    won = [bool(episode["success"]) for episode in episodes]
    right = any(success for answer, success in zip(given, won, strict=True) if answer == first)
    return Votes(fmean(won), counts[first] / len(given), len(counts), bool(first) and right)


def _after(folder: Path, right: bool) -> list[Votes]:
    """The votes after training on the tasks whose majority was right, or wrong, before."""
    before = votes_of(folder, "cold_start")
    after = votes_of(folder, "trained")
    return [votes for task, votes in after.items() if before[task].right == right]


def _mean(values: Any) -> float | None:
    found = list(values)
    return fmean(found) if found else None
