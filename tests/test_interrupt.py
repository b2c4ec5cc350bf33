"""Code that blocks the event loop, in a verifier and in an environment's step."""

import time

import pytest

from tests.fakes import Capitals
from tests.rollout.playing import ANSWER, LOOKUP
from tests.rollout.test_episode import play
from turnwise.config import RolloutConfig
from turnwise.interrupt import computes
from turnwise.types import Action, Outcome, Step, Trajectory, Verdict

QUICK = RolloutConfig(max_seconds=0.05, max_ungraded_share=1.0)


class Sleeping(Capitals):
    async def verify(self, trajectory: Trajectory) -> Verdict:
        time.sleep(60)
        return Verdict(1.0, True)


class Turning(Capitals):
    async def verify(self, trajectory: Trajectory) -> Verdict:
        while True:
            pass


@pytest.mark.long
@pytest.mark.parametrize("kind", [Sleeping, Turning])
def test_a_verifier_that_blocks_is_late(kind: type[Capitals]) -> None:
    begun = time.monotonic()
    trajectory = play([LOOKUP, ANSWER], kind(), limits=QUICK)
    assert time.monotonic() - begun < 10
    assert trajectory.outcome == Outcome.GRADER_TIMEOUT
    assert trajectory.reward is None
    assert "it blocks the event loop at " in trajectory.problem


def test_a_close_that_blocks_is_left() -> None:
    class Open(Capitals):
        def close(self) -> None:
            time.sleep(60)

    begun, trajectory = time.monotonic(), play([LOOKUP, ANSWER], Open(), limits=QUICK)
    assert time.monotonic() - begun < 40
    assert "close: DeadlineError: it blocks the event loop at " in trajectory.problem


def test_a_step_that_blocks_is_the_agents_failure() -> None:
    class Stuck(Capitals):
        async def step(self, action: Action) -> Step:
            time.sleep(60)
            return await super().step(action)

    trajectory = play([LOOKUP, ANSWER], Stuck(), limits=QUICK)
    assert trajectory.outcome == Outcome.AGENT_RESOURCE_LIMIT


@pytest.mark.long
def test_what_may_compute_for_long_is_left_alone() -> None:
    @computes
    def judge() -> bool:
        time.sleep(0.7)
        return True

    class Asking(Capitals):
        async def verify(self, trajectory: Trajectory) -> Verdict:
            return Verdict(1.0, judge())

    assert play([LOOKUP, ANSWER], Asking(), limits=QUICK).outcome == Outcome.SUCCESS


@pytest.mark.long
def test_code_that_blocks_for_less_than_its_time_is_left_alone() -> None:
    class Short(Capitals):
        async def verify(self, trajectory: Trajectory) -> Verdict:
            time.sleep(0.7)
            return Verdict(1.0, True)

    trajectory = play([LOOKUP, ANSWER], Short(), limits=RolloutConfig(max_seconds=30.0))
    assert trajectory.outcome == Outcome.SUCCESS
