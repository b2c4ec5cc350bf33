"""The agent loop: one task, one environment, one trajectory.

    begin ─> generate ─> parse ─> step ─> extend ─> generate ─> …  until done or truncated ─> verify

What can go wrong is sorted here, once: an agent's mistake is an observation, a spent budget is a
truncation, a failing environment or grader leaves the episode ungraded. Nothing here knows how
tokens are sampled or what the reward is used for.
"""

import asyncio
import math
import time
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TypeVar

from turnwise.config import RolloutConfig
from turnwise.engines.base import Completion, Engine, Sampling, StopReason
from turnwise.environments.base import Environment
from turnwise.errors import InfrastructureError
from turnwise.scaffolds.base import Scaffold
from turnwise.seeds import derive
from turnwise.types import (
    Action,
    Observation,
    Outcome,
    Source,
    Step,
    ToolCall,
    Trajectory,
    Turn,
    Verdict,
)

Result = TypeVar("Result")


class EpisodeEnded(Exception):
    """Ends the loop with an outcome; what was said so far is kept."""

    def __init__(self, outcome: Outcome, problem: str = "") -> None:
        super().__init__(problem or outcome.value)
        self.outcome = outcome
        self.problem = problem


@dataclass
class Episode:
    """One run of the loop. Example: `await Episode(trajectory, environment, scaffold, engine,
    limits, session="0001/hop1/2").run()` fills the trajectory in and returns it."""

    trajectory: Trajectory
    environment: Environment
    scaffold: Scaffold
    engine: Engine
    limits: RolloutConfig
    session: str

    async def run(self) -> Trajectory:
        """Play the episode and have it judged. Raises only for bugs and for cancellation."""
        self._start = time.monotonic()
        try:
            await self._play()
        except EpisodeEnded as end:
            self.trajectory.outcome = end.outcome
            self.trajectory.problem = end.problem
        try:
            if self.trajectory.outcome.graded:
                await self._judge()
        finally:
            self.trajectory.seconds = time.monotonic() - self._start
            await self._close()
        return self.trajectory

    async def _play(self) -> None:
        task, tokens = self.trajectory.task.public(), self.trajectory.tokens
        self.environment.truncate = self.scaffold.truncate
        prompt = await self._guard(
            self.environment.reset(task, derive(self.trajectory.seed, "environment")),
            Outcome.INFRASTRUCTURE_RESET,
        )
        tokens.extend_segments(self.scaffold.begin(prompt), turn=0)
        for turn in range(self.limits.max_turns):
            completion = await self._generate(turn)
            tokens.extend_sampled(completion.tokens, completion.logprobs, completion.version, turn)
            action = self.scaffold.parse(completion.tokens)
            if completion.stop_reason == StopReason.CONTEXT:
                self.trajectory.turns.append(Turn(action))
                raise EpisodeEnded(Outcome.TRUNCATED_CONTEXT)
            step = await self._step(action, turn)
            if step.abort:
                raise EpisodeEnded(Outcome.AGENT_ABORT)
            if step.done:
                self.trajectory.outcome = Outcome.FAILURE  # until the verifier says otherwise
                return
            if step.observation is not None and turn + 1 < self.limits.max_turns:
                self._observe(step.observation, turn)
        malformed = self.trajectory.turns[-1].action.error is not None
        raise EpisodeEnded(Outcome.AGENT_PARSE_ERROR if malformed else Outcome.TRUNCATED_TURNS)

    async def _generate(self, turn: int) -> Completion:
        tokens = self.trajectory.tokens
        room = self.limits.max_tokens - len(tokens)
        seconds_left = self.limits.max_seconds - (time.monotonic() - self._start)
        if room < 1:
            raise EpisodeEnded(Outcome.TRUNCATED_TOKENS)
        if seconds_left <= 0:
            raise EpisodeEnded(Outcome.TRUNCATED_TIME)
        sampling = Sampling(
            max_tokens=min(self.limits.max_turn_tokens, room),
            temperature=self.limits.temperature,
            stop=self.scaffold.stop,
            seed=derive(self.trajectory.seed, "sampling", turn),
        )
        try:
            async with asyncio.timeout(seconds_left):
                return await self.engine.generate(
                    tokens.ids.tolist(), sampling, session=self.session
                )
        except TimeoutError:
            raise EpisodeEnded(Outcome.TRUNCATED_TIME) from None
        except InfrastructureError as error:
            raise EpisodeEnded(Outcome.INFRASTRUCTURE_MODEL, str(error)) from error

    async def _step(self, action: Action, turn: int) -> Step:
        if action.error is not None:
            step = Step(Observation(action.error, Source.ENVIRONMENT))
            self.trajectory.turns.append(Turn(action, step))
            return step
        if self.trajectory.tool_calls + len(action.calls) > self.limits.max_tool_calls:
            self.trajectory.turns.append(Turn(action))
            raise EpisodeEnded(Outcome.TRUNCATED_TOOL_CALLS)
        action = _with_ids(action, turn)
        self.trajectory.turns.append(Turn(action))
        step = await self._guard(self.environment.step(action), Outcome.INFRASTRUCTURE_STEP)
        self.trajectory.turns[-1] = Turn(action, step)
        return step

    def _observe(self, observation: Observation, turn: int) -> None:
        segments = self.scaffold.extend(observation)
        length = sum(len(segment.tokens) for segment in segments)
        if len(self.trajectory.tokens) + length >= self.limits.max_tokens:
            raise EpisodeEnded(Outcome.TRUNCATED_TOKENS)
        self.trajectory.tokens.extend_segments(segments, turn)

    async def _judge(self) -> None:
        trajectory = self.trajectory
        try:
            async with asyncio.timeout(self.limits.max_seconds):
                verdict: Verdict = await self.environment.verify(trajectory)
            if not math.isfinite(verdict.reward):
                raise ValueError(f"reward {verdict.reward} is not a finite number")
        except TimeoutError:
            trajectory.outcome = Outcome.GRADER_TIMEOUT
        except Exception as error:  # noqa: BLE001 - a user's verifier may raise anything
            trajectory.outcome = Outcome.GRADER_ERROR
            trajectory.problem = f"{type(error).__name__}: {error}"
        else:
            trajectory.verdict = verdict
            if trajectory.outcome == Outcome.FAILURE and verdict.success:
                trajectory.outcome = Outcome.SUCCESS

    async def _guard(self, work: Awaitable[Result], failure: Outcome) -> Result:
        """Await environment code under the deadline; its exceptions are infrastructure's."""
        try:
            async with asyncio.timeout(self.limits.max_seconds):
                return await work
        except Exception as error:
            raise EpisodeEnded(failure, f"{type(error).__name__}: {error}") from error

    async def _close(self) -> None:
        try:
            async with asyncio.timeout(self.limits.max_seconds):
                await self.environment.close()
        except Exception as error:  # noqa: BLE001 - a user's environment may raise anything
            self.trajectory.problem += f" close: {type(error).__name__}: {error}"


def _with_ids(action: Action, turn: int) -> Action:
    calls = tuple(
        ToolCall(call.name, call.arguments, id=f"{turn}.{position}")
        for position, call in enumerate(action.calls)
    )
    return Action(action.text, action.thought, calls, action.answer)
