"""Noise: verdicts that change when made again, and a reward's variance divided."""

import random

import numpy as np
import pytest

from asking import Asking, failed, found
from turnwise.environments.tasksets import TaskSet
from turnwise.types import Observation, Task, Trajectory, Verdict
from turnwise_trust.audit.noise import OBJECTIVE, VARIANCE, divided, noise


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
