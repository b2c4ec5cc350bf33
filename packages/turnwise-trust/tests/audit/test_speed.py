"""Speed: seconds of a verdict, and verdicts that block the others."""

import asyncio
import time

import pytest

from asking import Asking, failed, found
from turnwise.types import Trajectory, Verdict
from turnwise_trust.audit import speed as measured
from turnwise_trust.audit.speed import speed

FAST, SCALABLE = "fast: seconds of a verdict", "scalable: 8 verdicts at once"


class Waiting(Asking):
    async def verify(self, trajectory: Trajectory) -> Verdict:
        await asyncio.sleep(0.03)
        return await super().verify(trajectory)


class Blocking(Asking):
    def verify(self, trajectory: Trajectory) -> Verdict:
        time.sleep(0.03)
        return super().verify(trajectory)  # type: ignore[return-value]


class Raising(Asking):
    def verify(self, trajectory: Trajectory) -> Verdict:
        raise OSError("gone")


@pytest.mark.long
def test_a_verifier_that_waits_lets_others_work(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(measured, "SHORT", 0.02)
    rows = found(speed, Waiting())
    assert rows[FAST].figure == pytest.approx(0.03, rel=0.5)
    assert rows[SCALABLE].passed
    assert (rows[SCALABLE].figure or 0) > 3
    assert SCALABLE in failed(speed, Blocking())


def test_nothing_is_timed_without_a_verdict():
    assert [one.figure for one in found(speed, Raising()).values()] == [None, None]
