"""Rewards: ranges, partial credit, false positives and negatives, verdicts that are none."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from asking import Asking, failed, found
from turnwise.environments.base import EnvironmentSpec
from turnwise.errors import NotSupportedError
from turnwise.rewards.parts import RewardPart
from turnwise.types import Action, Task, Trajectory, Verdict
from turnwise_trust.audit.rewards import rewards

FORM, PARTIAL = "well-formed reward", "continuous: partial credit"
POSITIVES, NEGATIVES = "low noise: false positives", "low noise: false negatives"


class Giving(Asking):
    """Its verifier returns what it is given."""

    def __init__(self, verdict: Any) -> None:
        self.verdict = verdict

    def verify(self, trajectory: Trajectory) -> Verdict:
        if isinstance(self.verdict, Exception):
            raise self.verdict
        return self.verdict  # type: ignore[no-any-return]


class Stepwise(Asking):
    def verify(self, trajectory: Trajectory) -> Verdict:
        right = trajectory.answer == trajectory.task.secret["sum"]
        return Verdict(0.5 * bool(trajectory.tool_calls) + 0.5 * right, right)


class Paying(Asking):
    """Takes any answer that is a number."""

    def verify(self, trajectory: Trajectory) -> Verdict:
        right = (trajectory.answer or "").strip().isdecimal()
        return Verdict(float(right), right)


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


class Unknown(Asking):
    def oracle(self, task: Task) -> Sequence[Action]:
        raise NotSupportedError("no oracle")


def test_a_sound_environment_has_no_wrong_verdict():
    rows = found(rewards, Asking())
    assert not [one for one in rows.values() if one.passed is False]
    assert rows[POSITIVES].figure == rows[NEGATIVES].figure == rows[PARTIAL].figure == 0
    assert rows[NEGATIVES].high == pytest.approx(0.2425, abs=1e-3)


@pytest.mark.parametrize(
    "verdict",
    [
        Verdict(math.nan, True),
        Verdict(1.0, "yes"),  # type: ignore[arg-type]
        Verdict(True, True),
        0.0,
        ValueError("broken"),
    ],
)
def test_what_is_no_verdict_is_found(verdict: Any):
    row = failed(rewards, Giving(verdict))[FORM]
    assert row.figure == 1


def test_ranges_that_are_declared_are_kept_to():
    environment = Giving(Verdict(-0.5, False, {"share": 2.0}))
    assert "rewards -0.5 to -0.5" in found(rewards, environment)[FORM].note
    environment.facts = EnvironmentSpec("giving", "1", rewards="shares")
    assert "reward -0.5 outside of 0 to 1" in failed(rewards, environment)[FORM].note
    parts = {"share": RewardPart(0, 1, "a share")}
    environment.facts = EnvironmentSpec("giving", "1", rewards="signed", parts=parts)
    assert "part share 2 outside of 0 to 1" in failed(rewards, environment)[FORM].note


def test_partial_credit_is_measured_on_the_oracles_way():
    row = found(rewards, Stepwise())[PARTIAL]
    assert row.figure == 1
    assert "3 different rewards" in row.note


def test_answers_of_other_tasks_must_not_pass():
    assert failed(rewards, Paying())[POSITIVES].figure == 0.5


def test_a_refused_oracle_is_named():
    row = failed(rewards, Mislabelled())[NEGATIVES]
    assert row.figure == pytest.approx(1 / 12)
    assert "train3" in row.note


def test_right_answers_with_blank_lines_around_are_counted():
    assert (
        "with blank lines around 12 of its answers are refused"
        in found(rewards, Strict())[NEGATIVES].note
    )


def test_labels_that_were_floats_by_mistake_are_found():
    class Floats(Strict):
        def tasks(self, split: str) -> Sequence[Task]:
            found = super().tasks(split)
            return [replace(one, secret={"sum": f"{one.secret['sum']}.0"}) for one in found]

    row = failed(rewards, Floats())[NEGATIVES]
    assert "12 whole numbers are refused whose '.0' passes" in row.note


def test_an_oracle_that_raises_is_a_finding_and_none_is_said():
    assert "KeyError" in failed(rewards, Raising())[NEGATIVES].note
    row = found(rewards, Unknown())[NEGATIVES]
    assert (row.figure, row.passed, row.note) == (None, None, "no oracle says what is right")
