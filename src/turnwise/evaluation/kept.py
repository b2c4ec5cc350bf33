"""Evaluations in folders: a run's own, and those in a folder that is read as a run's is.

Not here: how they are played (`policies.py`, `endpoint.py`, `training/evaluations.py`).
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from turnwise.config import Recipe
from turnwise.environments.base import Environment
from turnwise.evaluation.paired import Comparison
from turnwise.evaluation.report import write_report
from turnwise.storage.run_folder import RunFolder
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
    """Write the recipe, evaluations by their names, and a report of them.

    `policy` says whose figures they are, `tokenizer` decodes their tokens, if there are any, and
    `step` is the step of RL whose reward the episodes have.
    """
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
