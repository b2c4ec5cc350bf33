"""A run's evaluation judged again: by another verifier, or by the environment's as it is now.

No model plays. A verifier of one's own is a function of the trajectory. An environment's verdict
depends on the state that the episode left, so its actions are done again; where they do not show
what they showed, there is no verdict.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from typing import Any

from transformers import AutoTokenizer

from turnwise import event_loop
from turnwise.algorithms.registry import make_algorithm
from turnwise.config import OpenAIEngineConfig, Recipe, load_recipe
from turnwise.environments.base import Environment
from turnwise.environments.registry import environment_of
from turnwise.errors import ConfigError, DataError, located, unknown_name
from turnwise.evaluation.evaluate import summarise
from turnwise.interrupt import ANYTHING, raise_cancelled
from turnwise.parts.rewarding import parts_of_models, reward_of
from turnwise.registry import load_function
from turnwise.rewards.composition import Reward
from turnwise.rewards.measuring import PartError, called
from turnwise.rewards.verdicts import VerdictError, checked_verdict
from turnwise.scaffolds.registry import make_scaffold
from turnwise.seeds import derive
from turnwise.storage.run_folder import POLICIES, RunFolder
from turnwise.storage.trajectory_rows import read_rows, trajectory_of
from turnwise.types import Group, Outcome, Step, Trajectory, Verdict
from turnwise_studies.evaluations.robustness import FAILURES, WITHOUT

Judge = Callable[[Trajectory], Awaitable[Verdict]]
"""Gives the verdict on a finished episode; raises JudgeError where there is none."""


class JudgeError(Exception):
    """An episode cannot be judged; the text says why."""


@dataclass(frozen=True)
class Disagreement:
    """Two verdicts that differ. None is an episode without a grade."""

    task: str
    episode: int
    answer: str | None
    before: bool | None
    after: bool | None
    detail: str
    """The second verdict's detail, or why there is none."""


def by_function(function: Callable[[Trajectory], Any]) -> Judge:
    """A function, plain or async, that returns a Verdict, or whether the episode succeeded."""

    async def judge(trajectory: Trajectory) -> Verdict:
        try:
            found = await called(function, trajectory)
        except PartError as error:
            raise JudgeError(str(error)) from error
        if isinstance(found, bool):
            return Verdict(float(found), found)
        if not isinstance(found, Verdict):
            raise JudgeError(f"{found!r} instead of a Verdict, True or False")
        return found

    return judge


def by_environment(prototype: Environment, truncate: Callable[[str, int], str]) -> Judge:
    """An environment's verifier, after its actions are done again in it."""

    async def judge(trajectory: Trajectory) -> Verdict:
        environment = prototype.fresh()
        environment.truncate = truncate
        try:
            await _again(environment, trajectory)
            return await environment.verify(trajectory)
        except JudgeError:
            raise
        except ANYTHING as error:
            raise_cancelled(error)
            raise JudgeError(located(error)) from error
        finally:
            await environment.close()

    return judge


def by_reward(judge: Judge, reward: Reward, step: int) -> Judge:
    """Judge as another does, with a recipe's reward at a step in place of the verdict's."""
    weights = reward.weights(step)

    async def rewarded(trajectory: Trajectory) -> Verdict:
        verdict = checked_verdict(trajectory, await judge(trajectory))
        judged = replace(trajectory, verdict=verdict)
        try:
            return await reward.judge(judged, weights)
        except PartError as error:
            raise JudgeError(str(error)) from error

    return rewarded


async def rescored(
    trajectories: Sequence[Trajectory], judge: Judge, seconds: float
) -> list[Trajectory]:
    """The episodes with new verdicts, within a deadline each; those without a grade for other
    reasons than their grader stay."""
    return [await _rescored(trajectory, judge, seconds) for trajectory in trajectories]


def disagreements(before: Sequence[Trajectory], after: Sequence[Trajectory]) -> list[Disagreement]:
    found = []
    for one, two in zip(before, after, strict=True):
        verdicts = _success(one), _success(two)
        if verdicts[0] != verdicts[1]:
            said = two.problem or (two.verdict.detail if two.verdict is not None else "")
            found.append(Disagreement(two.task.id, two.episode, two.answer, *verdicts, said))
    return found


def _success(trajectory: Trajectory) -> bool | None:
    verdict = trajectory.verdict
    return verdict.success if trajectory.outcome.graded and verdict is not None else None


async def _rescored(trajectory: Trajectory, judge: Judge, seconds: float) -> Trajectory:
    outcome = trajectory.outcome
    if not outcome.graded and outcome.family != "grader":
        return trajectory
    try:
        async with asyncio.timeout(seconds):
            verdict = checked_verdict(trajectory, await judge(trajectory))
    except (TimeoutError, JudgeError, VerdictError) as error:
        late = isinstance(error, TimeoutError)
        return replace(
            trajectory,
            verdict=None,
            outcome=Outcome.GRADER_TIMEOUT if late else Outcome.GRADER_ERROR,
            problem=f"no verdict within {seconds:g} s" if late else str(error),
        )
    if outcome in (Outcome.SUCCESS, Outcome.FAILURE) or not outcome.graded:
        outcome = Outcome.SUCCESS if verdict.success else Outcome.FAILURE
    return replace(trajectory, verdict=verdict, outcome=outcome, problem="")


async def _again(environment: Environment, trajectory: Trajectory) -> None:
    """Do the actions of an episode again. Raises JudgeError where they show something else."""
    await environment.reset(trajectory.task.public(), derive(trajectory.seed, "environment"))
    for number, turn in enumerate(trajectory.turns, 1):
        if turn.step is None or turn.action.error is not None:
            continue
        step = await environment.step(turn.action)
        if _shown(step) != _shown(turn.step):
            raise JudgeError(f"turn {number}, done again, shows something else than it did")


def _shown(step: Step) -> str | None:
    return None if step.observation is None else step.observation.content


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
    groups = [Group(name, tuple(own)) for name, own in groupby(after, lambda one: one.group)]
    with folder.locked():
        folder.write_trajectories(f"evaluation-rescored-{evaluation}", groups)
        folder.write_evaluation(f"rescored-{evaluation}", summary)
    return summary


def _reward(recipe: Recipe, environment: Environment) -> Reward | None:
    """The recipe's. Raises ConfigError where a model has a part."""
    models = parts_of_models(recipe)
    algorithm = make_algorithm(recipe.algorithm.name, recipe.algorithm.overrides)
    reward = reward_of(recipe, algorithm, environment, models)
    terms = () if reward is None else reward.terms
    asked = set(models) - environment.spec.parts.keys()
    there = [term.name for term in terms if (term.config.use or term.name) in asked]
    if there:
        best = " evaluation.best_of=" if recipe.evaluation.best_of in there else ""
        raise ConfigError(
            f"rescore asks no model, and one has a part in the recipe's reward "
            f"({', '.join(there)}): leave it out with reward=false judge=false "
            f"preferences.by=reward reward_model=false{best}"
        )
    return reward


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
