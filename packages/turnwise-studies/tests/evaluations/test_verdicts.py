"""Saved episodes under other verdicts: functions, environments, and what has no verdict."""

import asyncio
import time
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("turnwise_environments", reason="turnwise[environments] is not installed")

from turnwise.config import RewardConfig
from turnwise.environments.base import Environment, cut_words
from turnwise.rewards.composition import make_reward
from turnwise.tools.tool import tool
from turnwise.types import Action, Outcome, Task, ToolCall, Trajectory, Verdict
from turnwise_environments.measurement import played
from turnwise_studies.evaluations.rescoring import (
    Judge,
    by_environment,
    by_function,
    by_reward,
    disagreements,
    rescored,
)

TASK = Task("three", "Count to 3.", {"n": 3})


class Counter(Environment):
    """Success depends on the state, and not on what was said."""

    async def reset(self, task: Task, seed: int) -> Any:
        self.total = 0
        return await super().reset(task, seed)

    @tool
    def add(self, number: int) -> str:
        """Add."""
        self.total += number
        return str(self.total)

    async def verify(self, trajectory: Trajectory) -> Verdict:
        right = self.total == trajectory.task.secret["n"]
        return Verdict(float(right), right, detail=f"counted to {self.total}")


class Lenient(Counter):
    """The same, but one too many is allowed."""

    async def verify(self, trajectory: Trajectory) -> Verdict:
        return Verdict(1.0, 0 <= self.total - trajectory.task.secret["n"] <= 1)


class Restless(Counter):
    """The same, but what it shows is another thing each time."""

    @tool
    def add(self, number: int) -> str:
        """Add."""
        return f"{super().add(number)} at {time.monotonic_ns()}"


def counted(*numbers: int, environment: Environment | None = None) -> Trajectory:
    """An episode that adds these numbers."""
    calls = [Action("", calls=(ToolCall("add", {"number": number}),)) for number in numbers]
    script = [*calls, Action("", answer="done")]
    return asyncio.run(played(environment or Counter(), TASK, script)).trajectory


def judged(judge: Judge, *episodes: Trajectory, seconds: float = 5) -> list[Trajectory]:
    return asyncio.run(rescored(episodes, judge, seconds))


def test_an_environment_comes_to_the_same_verdicts_from_its_own_state() -> None:
    episodes = [counted(1, 2), counted(4), counted()]
    again = judged(by_environment(Counter(), cut_words), *episodes)
    assert again == episodes
    assert disagreements(episodes, again) == []
    kinder = judged(by_environment(Lenient(), cut_words), *episodes)
    (one,) = disagreements(episodes, kinder)
    assert (one.task, one.before, one.after, one.answer) == ("three", False, True, "done")
    assert kinder[1].outcome == Outcome.SUCCESS


def test_what_cannot_be_repeated_has_no_verdict() -> None:
    episode = counted(3, environment=Restless())
    (again,) = judged(by_environment(Restless(), cut_words), episode)
    assert (again.outcome, again.verdict) == (Outcome.GRADER_ERROR, None)
    assert again.problem == "turn 1, done again, shows something else than it did"
    assert disagreements([episode], [again])[0].after is None


def test_functions_give_verdicts_or_yes_and_no() -> None:
    async def strict(trajectory: Trajectory) -> Verdict:
        return Verdict(0.5, len(trajectory.turns) == 2, {"turns": 2.0})

    episodes = [counted(3), counted(1, 2)]
    found = judged(by_function(strict), *episodes)
    assert [one.outcome for one in found] == [Outcome.SUCCESS, Outcome.FAILURE]
    assert found[0].verdict == Verdict(0.5, True, {"turns": 2.0})
    found = judged(by_function(lambda one: one.answer == "done"), *episodes)
    assert [one.reward for one in found] == [1.0, 1.0]


@pytest.mark.long
@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (lambda one: 0.5, "0.5 instead of a Verdict, True or False"),
        (lambda one: 1 / 0, "ZeroDivisionError"),
        (lambda one: time.sleep(60), "no verdict within 2 s"),
        (lambda one: Verdict(float("nan"), True), "reward nan is not a finite number"),
        (lambda one: Verdict(1.0, "yes"), "success is 'yes' instead of True or False"),
        (lambda one: Verdict(1.0, True, turn_rewards=[1.0] * 7), "7 numbers for 2 turns"),
    ],
)
def test_a_verifier_that_fails_gives_no_grade(function: Any, problem: str) -> None:
    (found,) = judged(by_function(function), counted(3), seconds=2)
    assert not found.outcome.graded
    assert found.reward is None
    assert problem in found.problem


def test_budgets_and_lost_episodes_stay_what_they_were() -> None:
    spent = replace(counted(3), outcome=Outcome.TRUNCATED_TURNS)
    lost = replace(counted(3), outcome=Outcome.INFRASTRUCTURE_STEP, verdict=None)
    unjudged = replace(counted(3), outcome=Outcome.GRADER_ERROR, verdict=None)
    found = judged(by_function(lambda one: True), spent, lost, unjudged)
    outcomes = [Outcome.TRUNCATED_TURNS, Outcome.INFRASTRUCTURE_STEP, Outcome.SUCCESS]
    assert [one.outcome for one in found] == outcomes
    assert found[0].verdict.success


def test_the_reward_is_that_of_the_recipe() -> None:
    config = RewardConfig.model_validate({"outcome": 2, "parts": {"calls": 0.25}})
    reward = make_reward(config, {}, turns=4)
    again = by_environment(Counter(), cut_words)
    (right, wrong) = judged(by_reward(again, reward, 0), counted(1, 2), counted(1))
    assert (right.reward, wrong.reward) == (2.5, 0.25)
    broken = make_reward(RewardConfig.model_validate({"parts": {"f1": 0.5}}), {}, turns=4)
    (unknown,) = judged(by_reward(again, broken, 0), counted(1, 2))
    assert unknown.outcome == Outcome.GRADER_ERROR
    assert "reward part f1" in unknown.problem
