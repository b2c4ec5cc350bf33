"""The agent loop: one task, one environment, one trajectory.

    begin ─> generate ─> parse ─> step ─> extend ─> generate ─> …  until done or truncated ─> verify

Where `rollout.context` says so, a full window is followed by another one, with some of its tokens.
What can go wrong is sorted here, once: an agent's mistake is an observation, a spent budget is a
truncation, an action that goes on past its deadline is the agent's failure, a failing environment
or grader leaves the episode ungraded. Nothing here knows how tokens are sampled or what the reward
is used for.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from turnwise.config import RolloutConfig
from turnwise.engines.base import Completion, Engine, Sampling, StopReason
from turnwise.environments.base import Environment
from turnwise.errors import DeadlineError, InfrastructureError, located
from turnwise.interrupt import interrupted_after
from turnwise.rewards.composition import Reward
from turnwise.rewards.deadlines import deadline
from turnwise.rewards.measuring import PartError
from turnwise.rewards.verdicts import VerdictError, checked_verdict
from turnwise.rollout.context import COMPACTIONS, KEPT, REQUEST
from turnwise.rollout.priority_semaphore import PrioritySemaphore
from turnwise.scaffolds.base import Scaffold
from turnwise.seeds import derive
from turnwise.tokens import Segment, Source, Tokens
from turnwise.types import (
    Action,
    Branch,
    Observation,
    Outcome,
    Step,
    ToolCall,
    Trajectory,
    Turn,
    Verdict,
)

Result = TypeVar("Result")

ENGINE_PATIENCE = 10
"""One turn may take so many times `max_seconds` before the engine counts as hung."""


class EpisodeEnded(Exception):
    """Ends the loop with an outcome; what was said so far is kept."""

    def __init__(self, outcome: Outcome, problem: str = "") -> None:
        super().__init__(problem or outcome.value)
        self.outcome = outcome
        self.problem = problem


@dataclass
class Episode:
    """One run of the loop, which keeps what was said so far.

    Example: `await runner.episode(0, planned).run()` returns the trajectory.
    """

    planned: Trajectory
    """The episode to play: its task, group, number, seed, and where it branches off."""
    prototype: Environment
    """The episode acts in a `fresh()` one."""
    scaffold: Scaffold
    engine: Engine
    limits: RolloutConfig
    session: str
    semaphore: PrioritySemaphore
    """Bounds the episodes under way."""
    priority: int = 0
    """The lowest is served first."""
    start: Branch | None = None
    """The moment of another episode to begin from; None is the beginning."""
    snapshots: bool = False
    """Whether to keep the environment's state before each turn."""
    progress: Callable[[Trajectory], None] | None = None
    """Called with the trajectory when it is finished."""
    reward: Reward | None = None
    """The reward in place of the environment's own."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """The weights of the reward's parts."""
    clock: Callable[[], float] = time.monotonic
    """Seconds, by which the environment's time is counted against the episode's budget."""
    tokens: Tokens = field(default_factory=Tokens.empty, init=False)
    turns: list[Turn] = field(default_factory=list, init=False)
    environment_states: list[bytes] = field(default_factory=list, init=False)
    """The state before each turn, if states are kept."""
    outcome: Outcome = field(default=Outcome.CANCELLED, init=False)
    verdict: Verdict | None = field(default=None, init=False)
    problem: str = field(default="", init=False)
    seconds: float = field(default=0.0, init=False)
    _environment: Environment | None = field(default=None, init=False)
    _seconds_used: float = field(default=0.0, init=False)
    _written: Sequence[int] = field(default=(), init=False)

    @property
    def trajectory(self) -> Trajectory:
        """The trajectory up to here."""
        return replace(
            self.planned,
            tokens=self.tokens,
            turns=tuple(self.turns),
            outcome=self.outcome,
            verdict=self.verdict,
            snapshots=tuple(self.environment_states),
            seconds=self.seconds,
            problem=self.problem,
        )

    async def run(self) -> Trajectory:
        """Play the episode as soon as there is a place, and have it judged. Raises only for bugs
        and for cancellation."""
        # A lockstep engine waits for all open sessions: the next one opens in the moment in which
        # this one closes.
        async with self.semaphore.held(self.priority, self._open_session, self._close_session):
            start = self.clock()
            try:
                await self._play()
            except EpisodeEnded as end:
                self.outcome, self.problem = end.outcome, end.problem
            try:
                await self._judge()
            finally:
                await self._close()
                self.seconds = self.clock() - start
        if self.progress is not None:
            self.progress(self.trajectory)
        return self.trajectory

    async def _play(self) -> None:
        """Take turns until the episode is done. Raises EpisodeEnded where it ends before."""
        await self._begin()
        while (turn := len(self.turns)) < self.limits.max_turns:
            if self.snapshots:
                self.environment_states.append(await self._snapshot())
            action = await self._act(turn)
            step = await self._step(action, turn)
            if step.done and step.truncated:
                raise EpisodeEnded(Outcome.TRUNCATED_TURNS)
            if step.done:
                self.outcome = Outcome.FAILURE  # until the verifier says otherwise
                return
            if step.observation is not None and turn + 1 < self.limits.max_turns:
                await self._observe(step.observation, step, turn)
        raise EpisodeEnded(self._out_of_turns())

    def _open_session(self) -> None:
        self.engine.open(self.session)

    def _close_session(self) -> None:
        self.engine.close(self.session)

    async def _begin(self) -> None:
        prompt = await self._reset()
        if self.start is None:
            begin = partial(self.scaffold.begin, prompt)
            segments = self._rendered(begin, Outcome.INFRASTRUCTURE_RESET)
            self.tokens = self.tokens.with_segments(segments, turn=0)
            return
        await self._restore(self.start.state)
        self.tokens, self.turns = self.start.tokens, list(self.start.turns)

    async def _restore(self, state: bytes) -> None:
        async def restore() -> None:
            assert self._environment is not None  # there is one after a reset
            self._environment.restore(state)
            self._environment.reseed(derive(self.planned.seed, "environment"))

        await self._guard(restore(), type(None), Outcome.INFRASTRUCTURE_RESET)

    async def _snapshot(self) -> bytes:
        async def snapshot() -> bytes:
            assert self._environment is not None  # there is one after a reset
            return self._environment.snapshot()

        return await self._guard(snapshot(), bytes, Outcome.INFRASTRUCTURE_STEP)

    async def _reset(self) -> Observation:
        async def reset() -> Observation:
            self._environment = self.prototype.fresh()
            self._environment.truncate = self.scaffold.truncate
            seed = derive(self.planned.seed, "environment")
            return await self._environment.reset(self.planned.task.public(), seed)

        return await self._guard(reset(), Observation, Outcome.INFRASTRUCTURE_RESET)

    async def _act(self, turn: int) -> Action:
        """Sample one turn, and read what it means."""
        completion = await self._sample(turn)
        action = self.scaffold.parse(completion.tokens)
        if completion.stop_reason == StopReason.CONTEXT:
            self.turns.append(Turn(action))
            raise EpisodeEnded(Outcome.TRUNCATED_CONTEXT)
        return action

    async def _sample(self, turn: int) -> Completion:
        """Sample one turn, and keep its tokens."""
        room = self.limits.max_tokens - self._context_length
        if room < 1:
            raise EpisodeEnded(Outcome.TRUNCATED_TOKENS)
        if self._seconds_used >= self.limits.max_seconds:
            raise EpisodeEnded(Outcome.TRUNCATED_TIME)
        sampling = Sampling(
            max_tokens=min(self.limits.max_turn_tokens, room),
            temperature=self.limits.temperature,
            top_k=self.limits.top_k,
            top_p=self.limits.top_p,
            min_p=self.limits.min_p,
            stop=self.scaffold.stop,
            seed=derive(self.planned.seed, "sampling", turn),
        )
        completion = await self._generate(sampling)
        self.tokens = self.tokens.with_sampled(
            completion.tokens, completion.logprobs, completion.version, turn
        )
        self._written = completion.tokens
        return completion

    @property
    def _context_length(self) -> int:
        span = self.tokens.spans[-1]
        return int(span.stop - span.start)

    async def _generate(self, sampling: Sampling) -> Completion:
        span = self.tokens.spans[-1]
        prompt, shown = self.tokens.ids[span].tolist(), self.tokens.images_in(span)
        images = {"images": shown} if shown else {}
        try:
            async with asyncio.timeout(ENGINE_PATIENCE * self.limits.max_seconds):
                return await self.engine.generate(prompt, sampling, session=self.session, **images)
        except TimeoutError:
            raise EpisodeEnded(Outcome.INFRASTRUCTURE_MODEL, "the engine hangs") from None
        except InfrastructureError as error:
            raise EpisodeEnded(Outcome.INFRASTRUCTURE_MODEL, str(error)) from error

    async def _step(self, action: Action, turn: int) -> Step:
        if action.error is not None:
            step = Step(Observation(action.error, Source.ENVIRONMENT))
            self.turns.append(Turn(action, step))
            return step
        if self.trajectory.tool_calls + len(action.calls) > self.limits.max_tool_calls:
            self.turns.append(Turn(action))
            raise EpisodeEnded(Outcome.TRUNCATED_TOOL_CALLS)
        action = _with_ids(action, turn)
        self.turns.append(Turn(action))
        assert self._environment is not None  # there is one after a reset
        work = self._environment.step(action)
        late = Outcome.AGENT_RESOURCE_LIMIT
        step = await self._guard(work, Step, Outcome.INFRASTRUCTURE_STEP, late)
        self.turns[-1] = Turn(action, step)
        if step.abort:
            raise EpisodeEnded(Outcome.AGENT_ABORT)
        return step

    def _out_of_turns(self) -> Outcome:
        malformed = self.turns[-1].action.error is not None
        return Outcome.AGENT_PARSE_ERROR if malformed else Outcome.TRUNCATED_TURNS

    async def _observe(self, observation: Observation, step: Step, turn: int) -> None:
        """Show what came back; in a new context if this one has no room for it and what follows."""
        extend = partial(self.scaffold.extend, observation, self._written, step.results)
        segments = self._rendered(extend, Outcome.INFRASTRUCTURE_STEP)
        if not self._fits(segments) and self.limits.context != "fail":
            if self.limits.context == "summarise":
                await self._summarise(turn + 1)
                segments = self.scaffold.extend(observation, self._written, step.results)
            room = int(KEPT * self.limits.max_tokens) - _length(segments)
            kept = COMPACTIONS[self.limits.context](self.tokens, room)
            self.tokens = self.tokens.with_context(kept)
        if not self._fits(segments):
            raise EpisodeEnded(Outcome.TRUNCATED_TOKENS)
        self.tokens = self.tokens.with_segments(segments, turn)

    def _rendered(self, render: Callable[[], list[Segment]], failure: Outcome) -> list[Segment]:
        """The scaffold's segments of an observation, whose images may be none."""
        try:
            return render()
        except InfrastructureError as error:
            raise EpisodeEnded(failure, str(error)) from error

    async def _summarise(self, turn: int) -> None:
        """Ask for a summary: a turn like any other, but that the environment does not see it."""
        if turn + 1 >= self.limits.max_turns:
            raise EpisodeEnded(self._out_of_turns())
        self.tokens = self.tokens.with_segments(self._request(self._written), turn - 1)
        completion = await self._sample(turn)
        text = self.scaffold.parse(completion.tokens).text
        self.turns.append(Turn(Action(text, summary=True)))
        if completion.stop_reason == StopReason.CONTEXT:
            raise EpisodeEnded(Outcome.TRUNCATED_CONTEXT)

    def _request(self, written: Sequence[int]) -> list[Segment]:
        return self.scaffold.extend(Observation(REQUEST, Source.USER), written)

    def _fits(self, segments: Sequence[Segment]) -> bool:
        """Whether the context has room for them and what follows: a token; or a whole turn; or also
        a request for a summary, and the summary."""
        reserve = {"fail": 1}.get(self.limits.context, self.limits.max_turn_tokens)
        if self.limits.context == "summarise":
            reserve += _length(self._request(())) + self.limits.max_turn_tokens
        return self._context_length + _length(segments) + reserve <= self.limits.max_tokens

    async def _judge(self) -> None:
        if not self.outcome.graded:
            return
        trajectory = self.trajectory
        try:
            async with deadline(self.limits.max_seconds):
                verdict = checked_verdict(trajectory, await self._verify(trajectory))
                if self.reward is not None:
                    judged = replace(trajectory, verdict=verdict)
                    rewarded = await self.reward.judge(judged, self.weights)
                    verdict = checked_verdict(trajectory, rewarded)
        except TimeoutError:
            self.outcome = Outcome.GRADER_TIMEOUT
        except DeadlineError as error:
            self.outcome, self.problem = Outcome.GRADER_TIMEOUT, str(error)
        except (PartError, VerdictError) as error:
            self.outcome, self.problem = Outcome.GRADER_ERROR, str(error)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a user's verifier may raise anything
            self.outcome, self.problem = Outcome.GRADER_ERROR, located(error)
        else:
            self.verdict = verdict
            if self.outcome == Outcome.FAILURE and verdict.success:
                self.outcome = Outcome.SUCCESS

    async def _verify(self, trajectory: Trajectory) -> Verdict:
        assert self._environment is not None  # graded episodes have been reset
        return await self._environment.verify(trajectory)

    async def _guard(
        self,
        work: Awaitable[Result],
        kind: type[Result],
        failure: Outcome,
        late: Outcome | None = None,
    ) -> Result:
        """Await environment code under the deadline; whatever it does wrong is infrastructure's,
        but that it takes too long is `late` where that is given.

        Its time counts against the episode's; waiting for the engine does not, because how long
        that takes depends on the other episodes.
        """
        start = self.clock()
        try:
            async with asyncio.timeout(self.limits.max_seconds) as scope:
                with interrupted_after(self.limits.max_seconds):
                    result = await work
            if not isinstance(result, kind):
                raise TypeError(f"{type(result).__name__} instead of {kind.__name__}")
        except (Exception, SystemExit) as error:
            too_late = isinstance(error, DeadlineError) or scope.expired()
            outcome = (late if too_late else None) or failure
            raise EpisodeEnded(outcome, located(error)) from error
        finally:
            self._seconds_used += self.clock() - start
        return result

    async def _close(self) -> None:
        if self._environment is None:
            return
        try:
            async with asyncio.timeout(self.limits.max_seconds):
                await self._environment.close()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a user's environment may raise anything
            self.problem += f" close: {located(error)}"


def _length(segments: Sequence[Segment]) -> int:
    return sum(len(segment.tokens) for segment in segments)


def _with_ids(action: Action, turn: int) -> Action:
    calls = tuple(
        ToolCall(call.name, call.arguments, id=f"{turn}.{position}")
        for position, call in enumerate(action.calls)
    )
    return Action(action.text, action.thought, calls, action.answer)
