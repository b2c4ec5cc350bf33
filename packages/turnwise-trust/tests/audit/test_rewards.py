"""Rewards: ranges, partial credit, verdicts that are none."""

import math
from typing import Any

import pytest

from asking import Asking, failed, found
from turnwise.environments.base import EnvironmentSpec
from turnwise.rewards.parts import RewardPart
from turnwise.types import Trajectory, Verdict
from turnwise_trust.audit.rewards import rewards

FORM, PARTIAL = "well-formed reward", "continuous: partial credit"


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


def test_a_sound_environment_has_no_wrong_verdict():
    rows = found(rewards, Asking())
    assert not [one for one in rows.values() if one.passed is False]
    assert rows[PARTIAL].figure == 0


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


class Lenient(Asking):
    """Accepts the answers of all tasks alike, and refuses one right one."""

    def verify(self, trajectory: Trajectory) -> Verdict:
        right = bool(trajectory.answer) and trajectory.task.id != "train3"
        return Verdict(float(right), right)


def test_rates_of_error_are_those_of_plain_right_and_wrong_answers():
    rows = found(rewards, Lenient())
    positives, negatives = (rows[f"low noise: false {one}"] for one in ("positives", "negatives"))
    assert positives.figure == pytest.approx(11 / 24)  # no answer, or another task's
    assert negatives.figure == pytest.approx(1 / 12)
    assert positives.low is not None
