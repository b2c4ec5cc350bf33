"""A run's evaluation judged again, beside the one that was made when it was played."""

from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any

from transformers import AutoTokenizer

from turnwise import event_loop
from turnwise.algorithms.registry import make_algorithm
from turnwise.config import OpenAIEngineConfig, Recipe, load_recipe
from turnwise.environments.base import Environment
from turnwise.environments.registry import environment_of
from turnwise.errors import ConfigError, DataError, unknown_name
from turnwise.evaluation.evaluate import summarise
from turnwise.parts.rewarding import parts_of_models, reward_of
from turnwise.registry import load_function
from turnwise.rewards.composition import Reward
from turnwise.scaffolds.registry import make_scaffold
from turnwise.storage.run_folder import POLICIES, RunFolder
from turnwise.storage.trajectory_rows import read_rows, trajectory_of
from turnwise.types import Group, Trajectory
from turnwise_studies.evaluations.robustness import FAILURES, WITHOUT
from turnwise_studies.evaluations.verdicts import (
    Judge,
    by_environment,
    by_function,
    by_reward,
    disagreements,
    rescored,
)


def rescore_run(
    folder: RunFolder, overrides: Sequence[str], evaluation: str, verifier: str | None
) -> dict[str, Any]:
    """Judge an evaluation of a run again: by a function (`mine.py:judge`), or by the environment,
    which overrides may change.

    The new evaluation is kept in the run as `rescored-NAME`, with its trajectories; its summary has
    `verifier` and `disagreements` besides. Raises DataError for episodes that the run lacks, or
    whose tasks the environment lacks.
    """
    recipe = load_recipe(str(folder.path / "config.toml"), overrides)
    environment = _environment(recipe, evaluation)
    if evaluation == FAILURES and verifier is None:
        raise ConfigError(
            f"{evaluation} was played with tools that were made to fail, and the environment's "
            "verifier needs its actions done again, with tools that do not: judge it with a "
            "function of the trajectory, --verifier path/to/file.py:name"
        )
    before = _saved(folder, evaluation, environment)
    played = folder.evaluation(evaluation) or {}
    judge: Judge
    if verifier is not None:
        judge = by_function(load_function(verifier, "verifier"))
    elif isinstance(recipe.engine, OpenAIEngineConfig):
        judge = by_environment(environment, environment.truncate)
    else:
        tokenizer = AutoTokenizer.from_pretrained(str(folder.tokenizer))
        scaffold = make_scaffold(recipe.scaffold, tokenizer, environment.tools())
        judge = by_environment(environment, scaffold.truncate)
        reward = _reward(recipe, environment)
        if reward is not None:
            judge = by_reward(judge, reward, played.get("step", 0))
    after = event_loop.run(rescored(before, judge, recipe.rollout.max_seconds))
    differing = disagreements(before, after)
    summary: dict[str, Any] = {
        **{name: played[name] for name in ("step", "environment") if name in played},
        **summarise(after, recipe.evaluation.k, environment.oracle, recipe.evaluation.best_of),
        "verifier": verifier or f"verify() of {environment.spec.name} {environment.spec.version}",
        "disagreements": [asdict(one) for one in differing],
    }
    with folder.locked():
        groups = [
            Group(name, tuple(members)) for name, members in groupby(after, lambda one: one.group)
        ]
        folder.write_trajectories(f"evaluation-rescored-{evaluation}", groups)
        folder.write_evaluation(f"rescored-{evaluation}", summary)
    return summary


def _reward(recipe: Recipe, environment: Environment) -> Reward | None:
    """The recipe's. Raises ConfigError where a model has a part."""
    models = parts_of_models(recipe)
    algorithm = make_algorithm(recipe.algorithm.name, recipe.algorithm.overrides)
    reward = reward_of(recipe, algorithm, environment, models)
    there = _of_models(reward, set(models) - environment.spec.parts.keys())
    if there:
        best = " evaluation.best_of=" if recipe.evaluation.best_of in there else ""
        raise ConfigError(
            f"rescore asks no model, and one has a part in the recipe's reward "
            f"({', '.join(there)}): leave it out with reward=false judge=false "
            f"preferences.by=reward reward_model=false{best}"
        )
    return reward


def _of_models(reward: Reward | None, models: set[str]) -> list[str]:
    terms = () if reward is None else reward.terms
    return [term.name for term in terms if (term.config.use or term.name) in models]


def _environment(recipe: Recipe, evaluation: str) -> Environment:
    """The recipe's environment, or an ablation of it, in which an evaluation was played."""
    environment = environment_of(recipe)
    if evaluation in (*POLICIES, FAILURES, WITHOUT):
        return environment
    variants = environment.ablations()
    if evaluation not in variants:
        raise unknown_name("evaluation", evaluation, [*POLICIES, FAILURES, WITHOUT, *variants])
    return variants[evaluation]


def _saved(folder: RunFolder, evaluation: str, environment: Environment) -> list[Trajectory]:
    file = folder.path / "trajectories" / f"evaluation-{evaluation}.parquet"
    if not file.is_file():
        raise DataError(f"{folder.path} has no evaluation {evaluation!r} yet")
    tasks = {task.id: task for task in environment.tasks("heldout")}
    rows = read_rows(file)
    lacking = [row["task"] for row in rows if row["task"] not in tasks]
    if lacking:
        raise DataError(
            f"{len(lacking)} of {len(rows)} episodes are of tasks that the environment does not "
            f"have (first: {lacking[0]!r}): rescore them with the tasks that they were played on"
        )
    return [trajectory_of(row, tasks[row["task"]]) for row in rows]
