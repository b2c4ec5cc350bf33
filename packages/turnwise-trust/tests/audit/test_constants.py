"""Constants: what is right by chance in the tasks that are tried first is no finding."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from asking import failed, subject_for
from turnwise.environments.base import Environment
from turnwise.environments.tasksets import TaskSet
from turnwise.errors import NotSupportedError
from turnwise.types import Action, Task, Trajectory, Verdict
from turnwise_trust.audit.constants import constants, one_answer
from turnwise_trust.audit.quick import QUICK
from turnwise_trust.audit.subject import OutOfTime

FIRST = 15


class Options(Environment):
    """Yes or no; of the first tasks nearly all are yes."""

    def __init__(self, often: float, declared: float = 0.0) -> None:
        right = ["no"] + ["yes"] * FIRST + ["yes" if n < 40 * often else "no" for n in range(40)]
        tasks = [Task(f"{n}", f"Question {n}?", {"right": one}) for n, one in enumerate(right)]
        self.task_set = TaskSet.of({"train": tasks, "heldout": []}, {"constant": declared})

    def oracle(self, task: Task) -> Sequence[Action]:
        return [Action("", answer=task.secret["right"])]

    def verify(self, trajectory: Trajectory) -> Verdict:
        right = trajectory.answer == trajectory.task.secret["right"]
        return Verdict(float(right), right)


@pytest.mark.long
@pytest.mark.parametrize(
    ("often", "declared", "passed"),
    [(0.5, 0.0, True), (0.75, 0.0, True), (1.0, 0.0, False), (1.0, 1.0, True)],
)
def test_a_constant_is_judged_on_other_tasks_by_what_it_is_right_on_or_is_declared(
    often: float, declared: float, passed: bool
) -> None:
    subject = subject_for(Options(often, declared))
    (one,) = one_answer(replace(subject, tasks=subject.tasks[: FIRST + 1]))
    assert one.passed is passed
    assert one_answer in QUICK.values()


class Worded(Options):
    """Takes another word for one of the answers."""

    async def verify(self, trajectory: Trajectory) -> Verdict:
        said = {"true": "yes"}.get(trajectory.answer or "", trajectory.answer)
        right = said == trajectory.task.secret["right"]
        return Verdict(float(right), right)


def test_another_word_for_a_right_answer_is_not_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnwise_trust.audit.constants.CONSTANTS", ("true", "yes", "done"))
    assert failed(constants, Worded(0.6)) == {}


def test_an_oracle_is_not_asked_for_what_is_frequent_when_the_time_is_over() -> None:
    subject = subject_for(Options(0.5))
    subject.clock.end = 0.0
    assert subject.idle == []
    asked: list[Task] = []
    subject.environment.oracle = asked.append  # type: ignore[assignment, method-assign]
    with pytest.raises(OutOfTime):
        list(one_answer(subject))
    assert asked == []


class Unknown(Options):
    """Has no oracle; a lenient one pays each yes."""

    def __init__(self, often: float, lenient: bool = False) -> None:
        super().__init__(often)
        self.lenient = lenient

    def oracle(self, task: Task) -> Sequence[Action]:
        raise NotSupportedError("no oracle")

    async def verify(self, trajectory: Trajectory) -> Verdict:
        always = self.lenient and trajectory.answer == "yes"
        return Verdict(1.0, True) if always else await super().verify(trajectory)


@pytest.mark.long
@pytest.mark.parametrize(
    ("often", "lenient", "wrong"), [(0.5, False, False), (0.75, False, False), (0.5, True, True)]
)
def test_a_constant_is_judged_without_an_oracle_against_the_classes_that_are_told_apart(
    often: float, lenient: bool, wrong: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turnwise_trust.audit.constants.CONSTANTS", ("A", "yes", "no"))
    environment = Unknown(often, lenient)
    assert ("one answer for all tasks" in failed(one_answer, environment)) is wrong
    assert ("a constant answer" in failed(constants, environment)) is wrong
