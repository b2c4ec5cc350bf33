"""Gateway, agent and engine die while an agent is idle, asks, has its last reply, is graded.

What is infrastructure's is ungraded, what is the agent's own is graded; nothing is doubled, and no
process, socket or session of the engine is left.
"""

import asyncio
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway_tests.hashed_engine import TOKENIZER, HashedEngine, check_record
from gateway_tests.playing import ASKING, LIMITS, RIGHT, SCAFFOLD, group_of, limits, written
from tests.fakes import Capitals
from tests.processes import ended
from turnwise.config import RolloutConfig
from turnwise.errors import InfrastructureError
from turnwise.types import Outcome, Trajectory, Verdict
from turnwise_gateway.agent_episode import make_host
from turnwise_gateway.settings import CommandAgent, FunctionAgent

pytest.importorskip("uvicorn")


class Dying(HashedEngine):
    """Does something at its n-th request: dies, hangs, or kills another."""

    def __init__(self, at: int = 0, what: str = "", pid: Path | None = None) -> None:
        super().__init__([RIGHT])
        self.at, self.what, self.pid = at, what, pid
        self.dead = False

    async def generate(self, *given: Any, **others: Any) -> Any:
        if self.dead:
            raise InfrastructureError("the engine is gone")
        if self.requests + 1 == self.at:
            self.requests += 1
            if self.what == "gateway":
                await self.host.gateway.stop()
            elif self.what == "agent":
                os.kill(int(self.pid.read_text()), 9)
            elif self.what == "engine":
                await asyncio.sleep(0)
                raise InfrastructureError("the engine is gone")
            await asyncio.Event().wait()  # the call ends when somebody ends it
        return await super().generate(*given, **others)


class Grading(Capitals):
    """Does something while an episode is graded."""

    engine: Dying
    what = ""

    async def verify(self, trajectory: Trajectory) -> Verdict:
        if self.what == "gateway":
            await self.engine.host.gateway.stop()
        elif self.what == "engine":
            self.engine.dead = True
        elif self.what == "agent":
            assert ended([int(self.engine.pid.read_text())]), "its program outlives its episode"
        return await super().verify(trajectory)


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """No descriptor, no child."""
    open_before, children_before = len(os.listdir("/proc/self/fd")), children()
    yield
    assert len(os.listdir("/proc/self/fd")) <= open_before
    assert children() <= children_before


def children() -> set[str]:
    """The processes that this one has started and that are there, ended ones among them."""
    tasks = Path("/proc/self/task").glob("*/children")
    return {child for task in tasks for child in task.read_text().split()}


def play(
    agent: FunctionAgent | CommandAgent,
    engine: Dying | None = None,
    limits: RolloutConfig = LIMITS,
    graded: str = "",
) -> Trajectory:
    """One episode, and what holds of each: what is trained was sampled so, once."""
    engine, environment = engine or Dying(), Grading()
    environment.engine, environment.what = engine, graded
    group = group_of(make_host(agent, SCAFFOLD, TOKENIZER), engine, environment, limits, places=1)
    (one,) = group.trajectories
    assert engine.open_sessions == engine.busy == set()
    check_record(one.tokens)
    assert one.capture.trained == int(one.tokens.mask.sum()) <= engine.sampled
    assert (one.reward is None) == (not one.outcome.graded)
    return one


FUNCTION = f"""{ASKING}
import asyncio

async def run(task, model):
    engine = model._session.engine
    async def asked(words=task.prompt, again=0):
        headers = {{"x-stainless-retry-count": str(again)}}
        await asyncio.to_thread(ask, words, model.anthropic_base_url, **headers)
"""


def function(folder: Path, *lines: str) -> FunctionAgent:
    return written(folder, FUNCTION + "".join(f"    {line}\n" for line in lines))


STOP = "await engine.host.gateway.stop()"


@pytest.mark.long
@pytest.mark.parametrize(
    ("lines", "at"),
    [
        (("await asked()", STOP, "await asked()"), 0),
        (("await asked()", "await asked('Again?')"), 2),
        (("await asked()", STOP), 0),
    ],
    ids=["idle", "call", "end"],
)
def test_the_gateway_dies(tmp_path: Path, lines: tuple[str, ...], at: int) -> None:
    played = play(function(tmp_path, *lines), Dying(at, "gateway"))
    assert played.outcome is Outcome.INFRASTRUCTURE_MODEL
    assert "the gateway has stopped" in played.problem


@pytest.mark.parametrize(
    ("lines", "at"),
    [
        (("await asked()", "engine.dead = True", "await asked('Again?')"), 0),
        (("await asked()", "await asked('Again?')"), 2),
    ],
    ids=["idle", "call"],
)
def test_the_engine_dies(tmp_path: Path, lines: tuple[str, ...], at: int) -> None:
    played = play(function(tmp_path, *lines), Dying(at, "engine"))
    assert (played.outcome, played.problem) == (Outcome.INFRASTRUCTURE_MODEL, "the engine is gone")


@pytest.mark.long
def test_the_engine_hangs(tmp_path: Path) -> None:
    played = play(function(tmp_path, "await asked()"), Dying(1, "hangs"), limits(max_seconds=0.05))
    assert (played.outcome, played.problem) == (Outcome.INFRASTRUCTURE_MODEL, "the engine hangs")


@pytest.mark.parametrize(
    ("last", "graded"), [("pass", "gateway"), ("pass", "engine"), ("engine.dead = True", "")]
)
def test_who_dies_after_the_last_reply_is_no_longer_needed(
    tmp_path: Path, last: str, graded: str
) -> None:
    played = play(function(tmp_path, "await asked()", last), graded=graded)
    assert played.outcome is Outcome.SUCCESS


def test_a_call_that_the_engine_failed_is_sampled_once_when_it_comes_again(tmp_path: Path) -> None:
    lines = ("try: await asked()", "except OSError: await asked(again=1)", "await asked(again=2)")
    engine = Dying(1, "engine")
    played = play(function(tmp_path, *lines), engine)
    assert played.outcome is Outcome.SUCCESS
    assert (played.capture.calls, played.capture.retried, len(played.turns)) == (1, 1, 1)
    assert played.capture.sampled == engine.sampled


PROGRAM = f"""{ASKING}
pid = sys.argv[1]
open(pid, "w").write(str(os.getpid()))
def die():
    os.kill(os.getpid(), 9)
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("lines", "at", "outcome"),
    [
        ("die()", 0, Outcome.INFRASTRUCTURE_STEP),
        ("ask(); die()", 0, Outcome.AGENT_ABORT),
        ("ask(); ask('Again?')", 2, Outcome.AGENT_ABORT),
        ("ask(); post('/end', {}); die()", 0, Outcome.SUCCESS),
        ("ask(); post('/end', {}); time.sleep(60)", 0, Outcome.SUCCESS),
    ],
    ids=["start", "idle", "call", "end", "graded"],
)
def test_the_agent_dies(tmp_path: Path, lines: str, at: int, outcome: Outcome) -> None:
    """A program that never got a reply may be the machine's fault; after one it is its own."""
    file, pid = tmp_path / "agent.py", tmp_path / "pid"
    file.write_text(PROGRAM + lines)
    agent = CommandAgent(command=(sys.executable, "-S", str(file), str(pid)))
    played = play(agent, Dying(at, "agent", pid), graded="agent" * (outcome is Outcome.SUCCESS))
    assert played.outcome is outcome
    assert len(played.turns) == (0 if outcome is Outcome.INFRASTRUCTURE_STEP else 1)
    if at:
        assert played.capture.refused == {"unfinished": 1}
    assert ended([int(pid.read_text())])
