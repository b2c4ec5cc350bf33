"""Evaluations in folders, a run's own and others: written, and read for comparisons."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from turnwise.config import Recipe
from turnwise.environments.base import Environment
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
from turnwise.evaluation.report import write_report
from turnwise.storage.run_folder import RunFolder
from turnwise.storage.trajectory_rows import read_columns
from turnwise.types import Group

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class Evaluated(NamedTuple):
    """An evaluation as it was played."""

    groups: Sequence[Group]
    summary: Mapping[str, Any]
    """The second value of `evaluate_policy`."""


def keep_evaluation(
    folder: RunFolder, name: str, found: Evaluated, environment: Environment, step: int
) -> None:
    """Write an evaluation's trajectories, and its summary with what comparisons and new verdicts
    have to know: the environment, and the step of RL whose reward it has."""
    folder.write_trajectories(f"evaluation-{name}", found.groups)
    spec = environment.spec
    known = f"{spec.name} {spec.version}, data {spec.data_hash or 'unhashed'}"
    folder.write_evaluation(name, {"step": step, "environment": known, **found.summary})


def write_evaluations(
    folder: RunFolder,
    recipe: Recipe,
    environment: Environment,
    evaluations: Mapping[str, Evaluated],
    policy: str,
    tokenizer: "PreTrainedTokenizerBase | None" = None,
    step: int = 0,
    comparisons: Sequence[Comparison] = (),
) -> None:
    """Write the recipe, evaluations by their names, and a report of them. `policy` says whose
    figures they are, `tokenizer` decodes their tokens, if there are any, and `step` is the step of
    RL whose reward the episodes have."""
    with folder.locked():
        folder.begin(recipe)
        if tokenizer is not None:
            folder.write_tokenizer(tokenizer)
        for name, one in evaluations.items():
            keep_evaluation(folder, name, one, environment, step)
        first = next(iter(evaluations.values()))
        write_report(
            folder,
            recipe,
            environment,
            [group.trajectories[0].task for group in first.groups],
            {name: one.summary for name, one in evaluations.items()},
            comparisons,
            sum(one.summary["seconds"] for one in evaluations.values()),
            policy,
        )


# prompt: it stands for `task_prompt` in files that lack that (`trajectory_rows.LATER`).
COLUMNS = ("group", "episode", "seed", "success", "prompt", "task_prompt")


def read_played(named: str) -> Played:
    """The evaluation that a text names: RUN, whose main evaluation is meant, or RUN@EVALUATION, as
    in runs/demo@cold_start. Raises DataError where there is none."""
    run, at, chosen = named.rpartition("@")
    if not at or Path(named).is_dir():  # a folder's own name may have an @ too
        run, chosen = named, ""
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
    # A group is called evaluation/NAME/TASK, and a task's id may have slashes of its own.
    episodes = {
        Key(row["group"].split("/", 2)[-1], row["episode"]): Episode(
            row["success"], row["seed"], row["task_prompt"]
        )
        for row in rows
    }
    return Played(name, summary["environment"], episodes)


def compare_within(folder: RunFolder, others: Sequence[str], last: str) -> list[Comparison]:
    """Compare a run's evaluation with others of it, where two tasks or more have grades in both."""
    played = {name: played_in(folder, name, name) for name in (*others, last)}
    pairs = [(played[name], played[last]) for name in others]
    return corrected([compare(one, two) for one, two in pairs if len(pairs_of(one, two)) > 1])
