"""Floors: idle agents and oracles, against what an environment declares."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from asking import Asking, failed, found, subject_for
from turnwise.environments.tasksets import TaskSet
from turnwise.errors import NotSupportedError
from turnwise.types import Action, Observation, Outcome, Task, Trajectory, Verdict
from turnwise_trust.audit.floors import floors
from turnwise_trust.audit.subject import OutOfTime

ORACLE = "the oracle"


class Idle(Asking):
    """Half of the tasks are solved by doing nothing, and the others cannot be solved."""

    def verify(self, trajectory: Trajectory) -> Verdict:
        right = trajectory.task.id.startswith("train")
        return Verdict(float(right), right)


@pytest.mark.parametrize(
    ("scores", "said"),
    [
        ({}, {"an agent that does nothing", "the oracle"}),
        ({"noop": 0.5, "oracle": 0.6}, set()),
        ({"noop": 0.5, "oracle": 0.9}, {"the oracle"}),
    ],
)
def test_what_is_declared_is_no_fault(scores: dict[str, float], said: set[str]):
    environment = Idle()
    environment.task_set = TaskSet(reference_scores=scores)
    assert set(failed(floors, environment)) == said


class Mislabelled(Asking):
    def oracle(self, task: Task) -> Sequence[Action]:
        if task.id == "train3":
            return [Action("", answer="no")]
        return super().oracle(task)


class Strict(Asking):
    def verify(self, trajectory: Trajectory) -> Verdict:
        right = trajectory.answer == trajectory.task.secret["sum"]
        return Verdict(float(right), right)


class Raising(Asking):
    def oracle(self, task: Task) -> Sequence[Action]:
        raise KeyError(task.id)


class Numeric(Asking):
    def oracle(self, task: Task) -> Sequence[Action]:
        return [Action("", answer=int(task.secret["sum"]))]  # type: ignore[arg-type]


class Unknown(Asking):
    def oracle(self, task: Task) -> Sequence[Action]:
        raise NotSupportedError("no oracle")


class Unlucky(Asking):
    """A quarter of the seeds refuse whatever is done."""

    def reset(self, task: Task, seed: int) -> Observation:
        self.lucky = seed % 4 != 0
        return Observation(task.prompt)

    async def verify(self, trajectory: Trajectory) -> Verdict:
        verdict = await super().verify(trajectory)
        return verdict if self.lucky else Verdict(0.0, False)


def test_bad_luck_of_the_oracle_is_a_fault_unless_luck_is_declared() -> None:
    environment = Unlucky()
    assert ORACLE in failed(floors, environment)
    environment.same_splits = True
    assert found(floors, environment)[ORACLE].passed


def test_a_refused_oracle_is_named():
    row = failed(floors, Mislabelled())[ORACLE]
    assert row.figure == pytest.approx(11 / 12)
    assert "train3" in row.note


def test_an_oracle_that_runs_out_of_time_is_not_judged():
    subject = subject_for(Asking())
    first, *others = subject.of_oracle
    late = replace(first, outcome=Outcome.TRUNCATED_TIME, verdict=Verdict(0.0, False))
    vars(subject)["of_oracle"] = [late, *others]
    *_, row = floors(subject)
    assert (row.figure, row.passed) == (1.0, True)
    assert "; 1 without a verdict in time, as task train0: truncated_time" in row.note
    vars(subject)["of_oracle"] = [late]
    *_, row = floors(subject)
    assert (row.figure, row.passed) == (None, None)


def test_a_refused_oracle_fails_where_there_is_no_time_for_other_seeds():
    subject = subject_for(Mislabelled())
    assert subject.of_oracle
    assert subject.idle
    subject.clock.end = 0.0
    *_, row = floors(subject)
    assert row.passed is False
    subject.environment.same_splits = True
    with pytest.raises(OutOfTime):
        list(floors(subject))


def test_right_answers_with_blank_lines_around_are_counted():
    assert (
        "with blank lines around 12 of its answers are refused"
        in found(floors, Strict())[ORACLE].note
    )


def test_labels_that_were_floats_by_mistake_are_found():
    class Floats(Strict):
        def tasks(self, split: str) -> Sequence[Task]:
            found = super().tasks(split)
            return [replace(one, secret={"sum": f"{one.secret['sum']}.0"}) for one in found]

    row = failed(floors, Floats())[ORACLE]
    assert "12 whole numbers are refused whose '.0' passes" in row.note


def test_an_oracle_that_raises_is_a_finding_and_none_is_said():
    assert "KeyError" in failed(floors, Raising())[ORACLE].note
    assert "oracle() of task train0 gives 1: " in failed(floors, Numeric())[ORACLE].note
    assert found(floors, Unknown())[ORACLE].note.startswith("the environment has none")
