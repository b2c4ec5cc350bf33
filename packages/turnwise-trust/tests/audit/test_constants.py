"""Constants: what is right by chance in the tasks that are tried first is no finding."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from asking import subject_for
from turnwise.environments.base import Environment
from turnwise.environments.tasksets import TaskSet
from turnwise.types import Action, Task, Trajectory, Verdict
from turnwise_trust.audit.constants import one_answer
from turnwise_trust.audit.quick import QUICK

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


@pytest.mark.parametrize(
    ("often", "declared", "passed"), [(0.5, 0.0, True), (0.9, 0.0, False), (0.9, 0.9, True)]
)
def test_a_constant_is_judged_on_other_tasks_and_by_what_is_declared(
    often: float, declared: float, passed: bool
) -> None:
    subject = subject_for(Options(often, declared))
    (one,) = one_answer(replace(subject, tasks=subject.tasks[: FIRST + 1]))
    assert one.passed is passed
    assert one_answer in QUICK.values()
