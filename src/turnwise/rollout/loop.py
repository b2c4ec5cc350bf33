"""The agent loop: one task, one environment, one trajectory, whatever the policy is.

    begin ─> act ─> step ─> observe ─> act ─> …  until done or truncated ─> verify

Failures are sorted here, once: an agent's mistake is an observation, a spent budget is a
truncation, an action that goes on past its deadline is the agent's failure, a failing environment
or grader leaves the episode ungraded. Each kind of episode has a policy of its own: tokens that are
sampled (`episode.py`), an endpoint's messages (`chat_episode.py`), a client's calls
(`turnwise-environments`).

Next: `rollout/episode.py`.
"""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TypeVar

from turnwise.config import RolloutConfig
from turnwise.environments.base import Environment
from turnwise.errors import DeadlineError, located
from turnwise.interrupt import ANYTHING, calls_user_code, interrupted_after, raise_cancelled
from turnwise.rewards.composition import Reward
from turnwise.rewards.deadlines import deadline
from turnwise.rewards.measuring import PartError
from turnwise.rewards.verdicts import VerdictError, checked_verdict
from turnwise.seeds import derive
from turnwise.times import Doing, EpisodeTimes, Span
from turnwise.tokens import Source
from turnwise.types import Action, Observation, Outcome, Step, ToolCall, Trajectory, Turn, Verdict

Result = TypeVar("Result")
LATE = (Outcome.TRUNCATED_TIME, Outcome.AGENT_RESOURCE_LIMIT)  # of a script: a slow machine


class EpisodeEnded(Exception):
    """Ends the loop with an outcome; what was said so far is kept."""

    def __init__(self, outcome: Outcome, problem: str = "") -> None:
        super().__init__(problem or outcome.value)
        self.outcome = outcome
        self.problem = problem


@dataclass(kw_only=True)
class EpisodeLoop(ABC):
    """One run of the loop, which keeps what was said so far. A subclass says how an episode begins,
    how the policy acts, and how it is shown what came back."""

    planned: Trajectory
    """The episode to play: its task, group, number and seed."""
    prototype: Environment
    """The episode acts in a `fresh()` one."""
    limits: RolloutConfig
    progress: Callable[[Trajectory], None] | None = None
    """Called with the trajectory when it is finished."""
    reward: Reward | None = None
    """The reward in place of the environment's own."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """The weights of the reward's parts."""
    clock: Callable[[], float] = time.monotonic
    """Seconds, by which the environment's time is counted against the episode's budget."""
    first: Observation | None = field(default=None, init=False)
    """The first message, once there is one."""
    turns: list[Turn] = field(default_factory=list, init=False)
    # The outcome until another one is set: cancellation leaves no moment to set it.
    outcome: Outcome = field(default=Outcome.CANCELLED, init=False)
    verdict: Verdict | None = field(default=None, init=False)
    problem: str = field(default="", init=False)
    seconds: float = field(default=0.0, init=False)
    times: EpisodeTimes | None = field(default=None, init=False)
    _timed: list[Span] = field(default_factory=list, init=False)
    _begun: float = field(default=0.0, init=False)
    _environment: Environment | None = field(default=None, init=False)
    _seconds_used: float = field(default=0.0, init=False)

    @abstractmethod
    async def _begin(self) -> None:
        """Set the scene, and show the policy the task."""

    @abstractmethod
    async def _act(self, turn: int) -> Action:
        """The policy's next action."""

    @abstractmethod
    async def _observe(self, observation: Observation, step: Step, turn: int) -> None:
        """Show the policy what came back, before its next action."""

    @property
    def trajectory(self) -> Trajectory:
        return replace(
            self.planned,
            turns=tuple(self.turns),
            outcome=self.outcome,
            verdict=self.verdict,
            seconds=self.seconds,
            times=self.times,
            problem=self.problem,
            first=self.first,
        )

    async def run(self) -> Trajectory:
        """Play and judge the episode once there is a place. Raises for bugs, cancellation."""
        async with self._place():
            self._begun = start = self.clock()
            try:
                try:
                    await self._begin()
                    while (turn := len(self.turns)) < self.limits.max_turns:
                        action = await self._act(turn)
                        step = await self._step(action, turn)
                        if step.done and step.truncated:
                            raise EpisodeEnded(Outcome.TRUNCATED_TURNS)
                        if step.done:
                            self.outcome = Outcome.FAILURE  # until the verifier says otherwise
                            break
                        # After the last action nothing reads it, and it would take room.
                        if step.observation is not None and turn + 1 < self.limits.max_turns:
                            await self._observe(step.observation, step, turn)
                    else:
                        raise EpisodeEnded(self._out_of_turns())
                except EpisodeEnded as end:
                    self.outcome, self.problem = end.outcome, end.problem
                await self._grade()
            # After a cancellation or a bug, too, what the environment holds is released.
            finally:
                await self._close()
                self.seconds = self.clock() - start
                self.times = EpisodeTimes(start, self.seconds, tuple(self._timed))
        if self.progress is not None:
            self.progress(self.trajectory)
        return self.trajectory

    @contextmanager
    def _doing(self, doing: Doing) -> Iterator[None]:
        """Note what the episode does inside, for its times."""
        begun = self.clock()
        try:
            yield
        finally:
            self._timed.append(Span(doing, begun - self._begun, self.clock() - self._begun))

    def _place(self) -> AbstractAsyncContextManager[None]:
        """Held while the episode is played."""
        return nullcontext()

    def _fresh(self) -> Environment:
        return self.prototype.fresh()

    async def _reset(self) -> Observation:
        async def reset() -> Observation:
            self._environment = self._fresh()  # inside the guard: `fresh` may be a user's
            seed = derive(self.planned.seed, "environment")
            return await self._environment.reset(self.planned.task.public(), seed)

        self.first = await self._guard(reset(), Observation, Outcome.INFRASTRUCTURE_RESET)
        return self.first

    def _check_time(self) -> None:
        if self._seconds_used >= self.limits.max_seconds:
            raise EpisodeEnded(Outcome.TRUNCATED_TIME)

    async def _step(self, action: Action, turn: int) -> Step:
        if action.error is not None:
            step = Step(Observation(action.error, Source.ENVIRONMENT))
            self.turns.append(Turn(action, step))
            return step
        # Counted only where there are calls: an episode of many turns would pay for it in each.
        calls = self.trajectory.tool_calls + len(action.calls) if action.calls else 0
        if calls > self.limits.max_tool_calls:
            self.turns.append(Turn(action))
            raise EpisodeEnded(Outcome.TRUNCATED_TOOL_CALLS)
        action = _with_ids(action, turn)
        self.turns.append(Turn(action))
        assert self._environment is not None  # there is one after a reset
        # The turn is kept already: an action whose step fails stays in the record.
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

    async def _grade(self) -> None:
        if self.outcome.graded:
            with self._doing(Doing.GRADING):
                await self._judge()

    @calls_user_code
    async def _judge(self) -> None:
        trajectory = self.trajectory
        try:
            async with deadline(self.limits.max_seconds):
                verdict = checked_verdict(trajectory, await self._verify(trajectory))
                if self.reward is not None:
                    # After the environment's verdict, which parts of the reward may read.
                    judged = replace(trajectory, verdict=verdict)
                    rewarded = await self.reward.judge(judged, self.weights)
                    verdict = checked_verdict(trajectory, rewarded)
        except TimeoutError:
            self.outcome = Outcome.GRADER_TIMEOUT
            self.problem = f"no verdict within rollout.max_seconds = {self.limits.max_seconds:g}"
        except DeadlineError as error:
            self.outcome, self.problem = Outcome.GRADER_TIMEOUT, str(error)
        except (PartError, VerdictError) as error:
            self.outcome, self.problem = Outcome.GRADER_ERROR, str(error)
        except ANYTHING as error:
            raise_cancelled(error)
            self.outcome, self.problem = Outcome.GRADER_ERROR, located(error)
        else:
            self.verdict = verdict
            if self.outcome == Outcome.FAILURE and verdict.success:  # what is truncated stays so
                self.outcome = Outcome.SUCCESS

    async def _verify(self, trajectory: Trajectory) -> Verdict:
        assert self._environment is not None  # graded episodes have been reset
        return await self._environment.verify(trajectory)

    @calls_user_code
    async def _guard(
        self,
        work: Awaitable[Result],
        kind: type[Result],
        failure: Outcome,
        late: Outcome | None = None,
    ) -> Result:
        """Await environment code under the deadline. Its errors are `failure`; that it takes too
        long is `late`, where given.

        Its time counts against the episode's, unlike waiting for the policy, which depends on other
        episodes.
        """
        start = self.clock()
        resets = failure is Outcome.INFRASTRUCTURE_RESET
        try:
            async with asyncio.timeout(self.limits.max_seconds) as scope:
                # The timeout ends work that waits; what blocks the loop, only the interrupt can.
                with (
                    self._doing(Doing.ENVIRONMENT if resets else Doing.TOOLS),
                    interrupted_after(self.limits.max_seconds),
                ):
                    result = await work
            if not isinstance(result, kind):
                raise TypeError(f"{type(result).__name__} instead of {kind.__name__}")
        except ANYTHING as error:
            raise_cancelled(error)
            # The scope is asked: a TimeoutError of the user's own is no deadline of ours.
            too_late = isinstance(error, DeadlineError) or scope.expired()
            outcome = (late if too_late else None) or failure
            raise EpisodeEnded(outcome, located(error)) from error
        finally:
            self._seconds_used += self.clock() - start
        return result

    @calls_user_code
    async def _close(self) -> None:
        if self._environment is None:
            return
        try:
            async with asyncio.timeout(self.limits.max_seconds):
                with interrupted_after(self.limits.max_seconds):
                    await self._environment.close()
        except ANYTHING as error:
            raise_cancelled(error)
            self.problem += f" close: {located(error)}"


def _with_ids(action: Action, turn: int) -> Action:
    calls = tuple(
        # By place: an episode that is played again has the same ids.
        ToolCall(call.name, call.arguments, id=f"{turn}.{position}")
        for position, call in enumerate(action.calls)
    )
    return Action(action.text, action.thought, calls, action.answer)
