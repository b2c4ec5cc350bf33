"""Noise: verdicts that change when made again, and a reward's variance divided."""

import random
import re
from dataclasses import replace

import numpy as np
import pytest

from asking import Asking, failed, found
from turnwise.environments.tasksets import TaskSet
from turnwise.tokens import Source
from turnwise.types import Action, Observation, Step, Task, Trajectory, Verdict
from turnwise_trust.audit.noise import OBJECTIVE, VARIANCE, divided, noise

PART = re.compile(r"(policy|tools and environment|judge|simulated user) (?:\(.*?\) )?(\d\.\d+)")


class Moody(Asking):
    def verify(self, trajectory: Trajectory) -> Verdict:
        return Verdict(random.random(), False)


class Changing(Asking):
    """Judging changes what is judged."""

    def reset(self, task: Task, seed: int) -> Observation:
        self.judged = 0
        return Observation(task.prompt)

    async def verify(self, trajectory: Trajectory) -> Verdict:
        self.judged += 1
        verdict = await super().verify(trajectory)
        return verdict if self.judged == 1 else Verdict(0.0, False)


class Sampling(Asking):
    """Judges one of the answer's signs, drawn anew each time."""

    def verify(self, trajectory: Trajectory) -> Verdict:
        wanted, said = trajectory.task.secret["sum"], trajectory.answer or ""
        place = random.randrange(len(wanted))
        right = said[place : place + 1] == wanted[place]
        return Verdict(float(right), right)


class Lucky(Asking):
    def reset(self, task: Task, seed: int) -> Observation:
        self.wins = seed % 2 == 0
        return Observation(task.prompt)

    def verify(self, trajectory: Trajectory) -> Verdict:
        return Verdict(float(self.wins), self.wins)


class Talking(Asking):
    """A user replies to the first answer; `moody` has the luck of the episode, which its words
    show and which decides."""

    moody = "user"

    async def reset(self, task: Task, seed: int) -> Observation:
        self.wins, self.asked = seed % 2 == 0, False
        return await super().reset(task, seed)

    async def step(self, action: Action) -> Step:
        if action.answer is None or self.asked:
            step = await super().step(action)
            return step if self.moody == "user" else _shown(step, self.wins)
        self.asked = True
        said = f"I am {self.wins}." if self.moody == "user" else "Go on."
        return Step(Observation(said, Source.USER))

    def verify(self, trajectory: Trajectory) -> Verdict:
        return Verdict(float(self.wins), self.wins)


def _shown(step: Step, wins: bool) -> Step:
    results = tuple(replace(one, content=f"{one.content} {wins}") for one in step.results)
    return replace(step, results=results)


class Generous(Asking):
    def verify(self, trajectory: Trajectory) -> Verdict:
        return Verdict(1.0, True)


def test_a_sound_verifier_has_no_noise():
    rows = found(noise, Asking())
    assert rows[OBJECTIVE].figure == 0
    assert rows[VARIANCE].figure == 0
    assert rows["flakiness"].figure == 0
    assert not [one for one in rows.values() if one.passed is False]


@pytest.mark.parametrize("environment", [Moody(), Changing(), Sampling()])
def test_verdicts_that_change_are_not_objective(environment: Asking):
    assert OBJECTIVE in failed(noise, environment)


@pytest.mark.long
def test_a_reward_of_luck_is_noise_unless_luck_is_declared():
    rows = found(noise, Lucky())
    assert rows[VARIANCE].passed is False
    assert (rows[VARIANCE].figure or 0) > 0.9
    assert 0.5 < (rows["flakiness"].figure or 0) < 1  # 3/4 of three tosses
    assert rows["flakiness"].note.endswith("declared: nothing")
    declared = Lucky()
    declared.task_set = TaskSet(reference_scores={"oracle": 0.5})
    told = found(noise, declared)["flakiness"].note
    assert told.endswith("the oracle succeeds in 50%, so 75% of its scripts at most")
    declared.same_splits = True
    assert found(noise, declared)[VARIANCE].passed is None


@pytest.mark.parametrize("moody", ["user", "tool"])
def test_a_users_noise_is_told_from_a_tools(moody: str):
    environment = Talking()
    environment.moody = moody
    row = found(noise, environment)[VARIANCE]
    parts = {name: float(figure) for name, figure in PART.findall(row.note)}
    assert parts.pop("simulated user" if moody == "user" else "tools and environment") > 0.9
    assert max(parts.values()) < 0.1
    assert len(parts) == 3


def test_where_no_user_replies_that_is_said():
    assert found(noise, Lucky())[VARIANCE].note.endswith("no simulated user")


def test_a_reward_that_is_always_the_same_teaches_nothing():
    assert VARIANCE in failed(noise, Generous())


def test_variance_is_divided_by_where_it_comes_from():
    stream = np.random.default_rng(1)
    tasks, policies, seeds, verdicts = 4000, 3, 3, 3
    rewards = (
        stream.normal(0, 3, (tasks, policies, 1, 1))
        + stream.normal(0, 2, (tasks, policies, seeds, 1))
        + stream.normal(0, 1, (tasks, policies, seeds, verdicts))
    )
    assert divided(rewards) == pytest.approx((9 / 14, 4 / 14, 1 / 14), abs=0.02)
