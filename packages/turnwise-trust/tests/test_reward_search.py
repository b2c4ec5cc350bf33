"""Reward search, and what single steps are worth: each fault is found, and sound ones are not."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from asking import subject_for
from turnwise import Action, Environment, Step, Task, ToolCall, Trajectory, Verdict, tool
from turnwise.environments.base import Split
from turnwise.storage.audits import Finding
from turnwise_trust.audit.search import reward_search
from turnwise_trust.audit.steps import farmable, unneeded
from turnwise_trust.audit.subject import Probe, Subject, subject_of

EPISODES = 400
CODES = {f"room {number}": str(100 + 7 * number) for number in range(16)}


class Codes(Environment):
    """A code for each room, which a tool tells; sound."""

    def tasks(self, split: Split) -> Sequence[Task]:
        rooms = list(CODES)[:8] if split == "train" else list(CODES)[8:]
        return [Task(room, f"The code of {room}?", {"code": CODES[room]}) for room in rooms]

    @tool
    def ask(self, room: str) -> str:
        """Ask for a room's code."""
        return f"It is {CODES.get(room, 'unknown')}"

    @tool
    def leave(self, door: str) -> str:
        """Leave by a door."""
        return f"You stand at the {door} door."

    def right(self, trajectory: Trajectory) -> bool:
        return bool(trajectory.answer == trajectory.task.secret["code"])

    async def verify(self, trajectory: Trajectory) -> Verdict:
        right = self.right(trajectory)
        return Verdict(float(right), right)

    def oracle(self, task: Task) -> Sequence[Action]:
        call = ToolCall("ask", {"room": task.id})
        return [Action("", calls=(call,)), Action("", answer=task.secret["code"])]


class AnyAnswer(Codes):
    """Whatever was asked and answered is right."""

    def right(self, trajectory: Trajectory) -> bool:
        return trajectory.tool_calls > 0 and bool(trajectory.answer)


class BackDoor(Codes):
    """Who asks and leaves twice has won, in this order and with nothing else."""

    def right(self, trajectory: Trajectory) -> bool:
        names = [call.name for turn in trajectory.turns for call in turn.action.calls]
        return super().right(trajectory) or names == ["ask", "leave", "leave"]


class PaidFailure(Codes):
    """A wrong answer that follows a call is paid in full, and is no success."""

    async def verify(self, trajectory: Trajectory) -> Verdict:
        tried = trajectory.tool_calls > 0 and trajectory.answer is not None
        return Verdict(float(tried), self.right(trajectory))


class PaidCalls(Codes):
    """Each call is rewarded, however often it is made."""

    async def step(self, action: Action) -> Step:
        step = await super().step(action)
        return Step(step.observation, step.results, step.done, reward=0.1 * len(action.calls))


class PaidOnce(Codes):
    """A first call is rewarded."""

    def fresh(self) -> "PaidOnce":
        made = super().fresh()
        made.called = False
        return made

    async def step(self, action: Action) -> Step:
        step, first = await super().step(action), bool(action.calls) and not self.called
        self.called = self.called or bool(action.calls)
        return Step(step.observation, step.results, step.done, reward=0.1 * first)


class Blind(PaidCalls):
    """Without an oracle."""

    def oracle(self, task: Task) -> Sequence[Action]:
        return Environment.oracle(self, task)


class Alike(AnyAnswer):
    """All tasks look alike, and differ by luck alone."""

    same_splits = True


def subject(kind: type[Environment], seed: int = 0) -> Subject:
    return replace(subject_for(kind()), seed=seed)


def found(probe: Any, audited: Subject, *given: int) -> dict[str, Finding]:
    return {one.check: one for one in probe(audited, *given)}


@pytest.mark.parametrize(
    ("kind", "episodes"),
    [(AnyAnswer, EPISODES), pytest.param(BackDoor, 1600, marks=pytest.mark.long)],
)
def test_one_script_for_all_tasks_is_found(kind: type[Environment], episodes: int) -> None:
    one = found(reward_search, subject(kind, 3), episodes)["one script for all tasks"]
    assert (one.passed, one.figure) == (False, 1)
    assert one.replay.startswith("ask(")


@pytest.mark.long
def test_reward_without_success_is_found() -> None:
    one = found(reward_search, subject(PaidFailure), EPISODES)["reward without success"]
    assert (one.passed, one.figure) == (False, 1)


@pytest.mark.parametrize(("kind", "passed"), [(PaidCalls, False), (Blind, False), (PaidOnce, True)])
def test_steps_whose_reward_can_be_farmed_are_found(kind: type[Environment], passed: bool) -> None:
    one = found(farmable, subject(kind))["a repeated step"]
    assert one.passed is passed
    assert ("64 times: a reward of" in one.replay) is not passed


def test_steps_that_success_can_do_without_are_measured() -> None:
    shares = {name: one.figure for name, one in found(unneeded, subject(Codes)).items()}
    assert shares == {
        "a step left out": 1.0,
        "the last step alone": 1.0,
        "the first half of the steps": 0.0,
    }


@pytest.mark.long
def test_a_small_policy_learns_to_read_a_sound_environment() -> None:
    findings = found(reward_search, subject(Codes), 1200)
    assert findings["a small policy"].figure == 1
    assert findings["a small policy"].passed is None
    assert "<" in findings["a small policy"].replay
    assert findings["one script for all tasks"].passed


@pytest.mark.long
def test_tasks_that_differ_by_luck_alone_are_measured_only() -> None:
    one = found(reward_search, subject(Alike), EPISODES)["one script for all tasks"]
    assert (one.passed, one.figure) == (None, 1)


@pytest.mark.long
@pytest.mark.parametrize("probe", [reward_search, farmable])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("frozen_lake", {}),
        ("frozen_lake", {"move_reward": -0.1, "slippery": True}),
        ("bandit", {"pulls": 5}),
        ("sokoban", {}),
    ],
)
def test_trial_and_error_is_no_fault(probe: Probe, name: str, options: dict[str, Any]) -> None:
    audited = subject_of(name, options, 16)
    given = (150,) if probe is reward_search else ()
    assert [one.check for one in probe(audited, *given) if one.passed is False] == []


@pytest.mark.long
def test_the_same_seed_finds_the_same() -> None:
    pages = [list(reward_search(subject(BackDoor, 3), EPISODES)) for _ in range(2)]
    assert pages[0] == pages[1]


def test_few_tasks_are_not_searched() -> None:
    (one,) = reward_search(Subject("codes", {}, Codes(), Codes().tasks("train")[:6]))
    assert one.passed is None
