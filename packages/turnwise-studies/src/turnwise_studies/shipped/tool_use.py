"""Measures of studies in which a question says what it needs: a run's folder to a number."""

import json
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

from turnwise import open_run
from turnwise.environments.registry import make_environment

BOTH = "both"


def both_where_needed(folder: Path) -> float | None:
    """Share of held-out episodes in which both tools gave a result, of questions that need both."""
    return _mean(used for needs, used in _episodes(folder) if needs == BOTH)


def both_where_not_needed(folder: Path) -> float | None:
    """Share of the same, of questions that need one tool or none."""
    return _mean(used for needs, used in _episodes(folder) if needs != BOTH)


def _episodes(folder: Path) -> Iterator[tuple[str, float]]:
    """The needs of each question of the last evaluation, and whether both tools gave a result."""
    run = open_run(folder)
    chosen = run.recipe().environment
    environment = make_environment(chosen.name, chosen.options)
    needs = {task.id: task.info["needs"] for task in environment.tasks("heldout")}
    for episode in run.trajectories("evaluation-trained").to_pylist():
        yield str(needs[episode["task"]]), json.loads(episode["parts"])["both_used"]


def _mean(values: Iterator[float]) -> float | None:
    found = list(values)
    return fmean(found) if found else None
