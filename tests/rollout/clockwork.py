"""Episodes that take time, without a model: a clock that jumps, and parts with random latencies."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from turnwise.config import RolloutConfig
from turnwise.engines.base import Completion, Sampling, StopReason
from turnwise.environments.base import Environment, Split
from turnwise.rollout.priority_semaphore import PrioritySemaphore
from turnwise.rollout.runner import RolloutRunner
from turnwise.tokens import Segment, Source
from turnwise.tools.tool import tool
from turnwise.types import Action, Observation, Task, ToolCall, ToolResult, Trajectory, Verdict

Result = TypeVar("Result")

PROMPT, CALL, ANSWER = 0, 1, 2
"""The tokens of the agents here."""
LONGEST = 15.0
"""Seconds of a call; three of them are below the limit of an episode."""
LIMITS = RolloutConfig(max_turns=8, max_seconds=60, max_ungraded_share=1.0)


class JumpingLoop(asyncio.SelectorEventLoop):
    """Time passes only where everybody waits, and then at once: an hour's sleep takes none."""

    now = 0.0

    def time(self) -> float:
        return self.now

    def _run_once(self) -> None:
        waiting: Any = self
        if not waiting._ready:
            times = [timer.when() for timer in waiting._scheduled if not timer.cancelled()]
            self.now = max(self.now, min(times, default=self.now))
        super()._run_once()


def run(work: Callable[[], Awaitable[Result]]) -> Result:
    """Run `work()` by the clock that jumps."""

    async def main() -> Result:
        return await work()

    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        return runner.run(main())


class Waiting(Environment):
    """The tool takes a time with a heavy tail, of mean 1 s; in some episodes of the tasks
    named in `hanging` it never returns."""

    def __init__(self, tasks: int = 6, hanging: Sequence[str] = ()) -> None:
        self.names = [f"task {number}" for number in range(tasks)]
        self.hanging = hanging
        self.log: list[tuple[str, float]] = []
        """Which episodes of which task were closed, and when; shared by all."""

    def tasks(self, split: Split) -> Sequence[Task]:
        return [Task(name, "Wait.") for name in self.names]

    async def reset(self, task: Task, seed: int) -> Observation:
        self.task, self.chance = task.id, random.Random(seed)
        self.hangs = task.id in self.hanging and self.chance.random() < 0.3
        return await super().reset(task, seed)

    @tool
    async def wait(self) -> str:
        """Wait."""
        if self.hangs:
            await asyncio.Event().wait()
        await asyncio.sleep(min(self.chance.lognormvariate(-0.5, 1.0), LONGEST))
        return "done"

    async def verify(self, trajectory: Trajectory) -> Verdict:
        return Verdict(1.0, True)

    async def close(self) -> None:
        self.log.append((self.task, asyncio.get_running_loop().time()))


class OneWord:
    """A scaffold in which each action is a token."""

    stop = ()

    def begin(self, prompt: Observation) -> list[Segment]:
        return [Segment([PROMPT], Source.USER)]

    def extend(
        self,
        observation: Observation,
        written: Sequence[int] = (),
        results: Sequence[ToolResult] = (),
    ) -> list[Segment]:
        return [Segment([PROMPT], observation.source)]

    def parse(self, tokens: Sequence[int]) -> Action:
        if list(tokens) == [CALL]:
            return Action("wait", calls=(ToolCall("wait", {}),))
        return Action("answer", answer="done")

    def render(self, action: Action) -> list[int]:
        return [CALL if action.calls else ANSWER]

    def truncate(self, text: str, max_tokens: int) -> str:
        return text


class Versioned:
    """An engine whose agents use the tool three times; a turn takes some time, and has the version
    of the weights that it began with."""

    def __init__(self, seconds: float = 0.1) -> None:
        self.version, self.seconds = 0, seconds
        self.sessions: set[str] = set()

    def open(self, session: str) -> None:
        assert session not in self.sessions
        self.sessions.add(session)

    def close(self, session: str) -> None:
        self.sessions.discard(session)

    async def generate(
        self, prompt: Sequence[int], sampling: Sampling, *, session: str
    ) -> Completion:
        version = self.version
        await asyncio.sleep(self.seconds)
        token = CALL if list(prompt).count(CALL) < 3 else ANSWER
        return Completion([token], [-1.0], StopReason.END_OF_TEXT, version)

    async def load_weights(self, weights: Mapping[str, Any], version: int) -> None:
        self.version = version

    async def sleep(self) -> None:
        pass

    async def stop(self) -> None:
        pass


def runner(engine: Versioned, environment: Waiting, seats: int) -> RolloutRunner:
    return RolloutRunner(environment, OneWord(), engine, LIMITS, PrioritySemaphore(seats))
