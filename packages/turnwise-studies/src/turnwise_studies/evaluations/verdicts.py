"""Saved episodes judged again: by another verifier, or by the environment's as it is now.

No model plays. A verifier of one's own is a function of the trajectory. An environment's verdict
depends on the state that the episode left, so its actions are done again; where they do not show
what they showed, there is no verdict.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from turnwise.environments.base import Environment
from turnwise.errors import located
from turnwise.rewards.composition import Reward
from turnwise.rewards.measuring import PartError, called
from turnwise.rewards.verdicts import VerdictError, checked_verdict
from turnwise.seeds import derive
from turnwise.types import Outcome, Step, Trajectory, Verdict

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
        except (Exception, SystemExit) as error:  # a user's environment may raise anything
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
        if _success(one) != _success(two):
            said = two.problem or (two.verdict.detail if two.verdict is not None else "")
            found.append(
                Disagreement(
                    two.task.id, two.episode, two.answer, _success(one), _success(two), said
                )
            )
    return found


def _success(trajectory: Trajectory) -> bool | None:
    graded = trajectory.outcome.graded and trajectory.verdict is not None
    return trajectory.verdict.success if graded and trajectory.verdict else None


async def _rescored(trajectory: Trajectory, judge: Judge, seconds: float) -> Trajectory:
    outcome = trajectory.outcome
    if not outcome.graded and outcome.family != "grader":
        return trajectory
    try:
        async with asyncio.timeout(seconds):
            verdict = checked_verdict(trajectory, await judge(trajectory))
    except TimeoutError:
        failed, problem = Outcome.GRADER_TIMEOUT, f"no verdict within {seconds:g} s"
        return replace(trajectory, verdict=None, outcome=failed, problem=problem)
    except (JudgeError, VerdictError) as error:
        failed = Outcome.GRADER_ERROR
        return replace(trajectory, verdict=None, outcome=failed, problem=str(error))
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
