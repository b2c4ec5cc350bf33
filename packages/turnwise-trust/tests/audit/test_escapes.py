"""Harm on the way to a success: a fault where the environment declares what harm is."""

import pytest

from asking import Asking, found
from turnwise.environments.base import EnvironmentSpec
from turnwise.rewards.parts import RewardPart
from turnwise.types import Trajectory, Verdict
from turnwise_trust.audit.escapes import escapes

TWICE = "the oracle, each call made twice"


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few strange answers and arguments: they take most of the time, and are not looked at here."""
    for name in ("STRANGE", "HOSTILE"):
        monkeypatch.setattr(f"turnwise_trust.audit.escapes.{name}", ("",))


class Counting(Asking):
    """Each call after the first does harm, by its own measure."""

    facts = EnvironmentSpec("counting", "1", parts={"harm": RewardPart(0, 99, "calls too many")})

    async def verify(self, trajectory: Trajectory) -> Verdict:
        verdict = await super().verify(trajectory)
        return Verdict(verdict.reward, verdict.success, {"harm": float(self.harm(trajectory))})

    def harm(self, trajectory: Trajectory) -> int:
        return max(0, trajectory.tool_calls - 1)


class Strict(Counting):
    async def verify(self, trajectory: Trajectory) -> Verdict:
        verdict = await super().verify(trajectory)
        return Verdict(0.0, False, verdict.parts) if verdict.parts["harm"] else verdict


class Harmless(Counting):
    def harm(self, trajectory: Trajectory) -> int:
        return 0


def test_harm_that_is_declared_may_not_be_paid():
    row = found(escapes, Counting())[TWICE]
    assert (row.passed, row.figure) == (False, 1)
    assert row.replay.startswith("task train0: add(")
    assert found(escapes, Strict())[TWICE].passed


def test_without_declared_harm_and_without_harm_it_is_a_measurement():
    row = found(escapes, Asking())[TWICE]
    assert (row.passed, row.figure) == (None, 1)
    assert "declares no part of the name harm" in row.note
    row = found(escapes, Harmless())[TWICE]
    assert (row.passed, row.figure) == (None, None)
