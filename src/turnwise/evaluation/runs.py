"""Evaluations that were saved in run folders, for comparisons.

Not here: how they are compared (`paired.py`).
"""

from collections.abc import Sequence
from pathlib import Path

from turnwise.errors import DataError, unknown_name
from turnwise.evaluation.paired import (
    Comparison,
    Episode,
    Key,
    Played,
    compare,
    corrected,
    pairs_of,
)
from turnwise.storage.run_folder import RunFolder
from turnwise.storage.trajectory_rows import read_columns

COLUMNS = ("group", "episode", "seed", "success", "prompt", "task_prompt")


def read_played(named: str) -> Played:
    """The evaluation that a text names: RUN, whose main evaluation is meant, or RUN@EVALUATION, as
    in runs/demo@cold_start. Raises DataError where there is none."""
    run, _, chosen = named.partition("@")
    folder = RunFolder.open(Path(run))
    return played_in(folder, folder.main_evaluation(chosen), named)


def played_in(folder: RunFolder, evaluation: str, name: str) -> Played:
    """An evaluation of a run, to be called `name`."""
    files = {file.stem: file for file in folder.trajectory_files()}
    found = {stem for stem in files if stem.startswith("evaluation-")}
    if not found:
        raise DataError(f"{folder.path} has no evaluation yet")
    chosen, summary = f"evaluation-{evaluation}", folder.evaluation(evaluation)
    if chosen not in found or summary is None:
        raise unknown_name("evaluation", evaluation, [stem.partition("-")[2] for stem in found])
    if "environment" not in summary:
        raise DataError(f"{folder.path} was written by an earlier version of turnwise")
    rows = read_columns(files[chosen], COLUMNS)
    episodes = {
        Key(row["group"].split("/", 2)[-1], row["episode"]): Episode(
            row["success"], row["seed"], row["task_prompt"]
        )
        for row in rows
    }
    return Played(name, summary["environment"], episodes)


def compare_within(folder: RunFolder, others: Sequence[str], last: str) -> list[Comparison]:
    """Compare an evaluation of a run with others of it, where two tasks or more have grades in
    both."""
    played = {name: played_in(folder, name, name) for name in (*others, last)}
    pairs = [(played[name], played[last]) for name in others]
    return corrected([compare(one, two) for one, two in pairs if len(pairs_of(one, two)) > 1])
