"""Episodes whose policy is sampled, token by token: the one kind that is trained on.

    begin ─> generate ─> parse ─> step ─> extend ─> generate ─> …

Where `rollout.context` says so, a full window is followed by another one, with some of its tokens.
The loop, and what can go wrong in it, is in `loop.py`.

Next: `environments/base.py`.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from functools import partial

from turnwise.engines.base import PATIENCE, Completion, Engine, Sampling, StopReason
from turnwise.environments.base import Environment
from turnwise.errors import ConfigError, InfrastructureError
from turnwise.rollout.context import COMPACTIONS, KEPT, REQUEST, forget
from turnwise.rollout.loop import EpisodeEnded, EpisodeLoop
from turnwise.rollout.priority_semaphore import PrioritySemaphore
from turnwise.scaffolds.base import Scaffold
from turnwise.seeds import derive
from turnwise.times import Doing
from turnwise.tokens import Image, Segment, Source, Tokens
from turnwise.types import Action, Branch, Observation, Outcome, Step, Trajectory, Turn


@dataclass(kw_only=True)
class Episode(EpisodeLoop):
    """One run of the loop with an engine and a scaffold."""

    scaffold: Scaffold
    engine: Engine
    session: str
    semaphore: PrioritySemaphore
    """Bounds the episodes under way."""
    priority: int = 0
    """The lowest is served first."""
    start: Branch | None = None
    """The moment of another episode to begin from; None is the beginning."""
    snapshots: bool = False
    """Whether to keep the environment's state before each turn."""
    tokens: Tokens = field(default_factory=Tokens.empty, init=False)
    environment_states: list[bytes] = field(default_factory=list, init=False)
    """The state before each turn, if states are kept."""
    _written: Sequence[int] = field(default=(), init=False)
    _cut_away: set[str] = field(default_factory=set, init=False)
    """Right answers that a limit has cut out of what a tool returned."""

    @property
    def trajectory(self) -> Trajectory:
        states = tuple(self.environment_states)
        played = replace(super().trajectory, tokens=self.tokens, snapshots=states)
        return replace(played, answer_cut=self._answer_cut(played.states))

    def _answer_cut(self, states: Sequence[str]) -> bool:
        """Whether right answers were cut away, and none of them stands in what was shown."""
        if not self._cut_away:
            return False
        return not any(answer in shown for shown in states for answer in self._answers)

    @property
    def _answers(self) -> list[str]:
        """The task's right answers, where they are texts."""
        answers = self.planned.task.secret.get("answers")
        several = answers if isinstance(answers, list | tuple) else [answers]
        return [one for one in several if isinstance(one, str) and one]

    def _truncate(self, text: str, max_tokens: int) -> str:
        """The beginning of a text; notes right answers that are cut away meanwhile."""
        left = self.scaffold.truncate(text, max_tokens)
        # CANCELLED is what an episode is until it ends: a verifier may shorten texts after that.
        if len(left) < len(text) and self.outcome == Outcome.CANCELLED:
            self._cut_away |= {one for one in self._answers if one in text and one not in left}
        return left

    def _place(self) -> AbstractAsyncContextManager[None]:
        # A lockstep engine waits for all open sessions: the next one opens as this one closes.
        opened = partial(self.engine.open, self.session)
        closed = partial(self.engine.close, self.session)
        return self.semaphore.held(self.priority, opened, closed)

    def _fresh(self) -> Environment:
        made = super()._fresh()
        made.truncate = self._truncate
        return made

    async def _begin(self) -> None:
        # A branch too: a snapshot need not hold all that a reset makes (`derived.Slow`).
        prompt = await self._reset()
        if self.start is None:
            begin = partial(self.scaffold.begin, prompt)
            segments = self._rendered(begin, Outcome.INFRASTRUCTURE_RESET)
            self.tokens = self.tokens.with_segments(segments, turn=0)
            return
        await self._restore(self.start.state, derive(self.planned.seed, "environment"))
        self.tokens, self.turns = self.start.tokens, list(self.start.turns)
        self.first = self.start.first

    async def _restore(self, state: bytes, seed: int) -> None:
        """Return to a state, and draw from another seed from there on."""

        async def restore() -> None:
            assert self._environment is not None
            self._environment.restore(state)
            self._environment.reseed(seed)

        await self._guard(restore(), type(None), Outcome.INFRASTRUCTURE_RESET)

    async def _snapshot(self) -> bytes:
        async def snapshot() -> bytes:
            assert self._environment is not None  # there is one after a reset
            return self._environment.snapshot()

        return await self._guard(snapshot(), bytes, Outcome.INFRASTRUCTURE_STEP)

    async def _act(self, turn: int) -> Action:
        """Sample one turn, and read what it means."""
        if self.snapshots:
            self.environment_states.append(await self._snapshot())
        completion = await self._sample(turn)
        # A turn that was cut at max_turn_tokens is read as any other: the agent is corrected.
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
        self._check_time()
        sampling = Sampling(
            max_tokens=min(self.limits.max_turn_tokens, room),
            temperature=self.limits.temperature,
            top_k=self.limits.top_k,
            top_p=self.limits.top_p,
            min_p=self.limits.min_p,
            stop=self.scaffold.stop,
            # A seed for each turn: its draws do not depend on how long earlier turns were.
            seed=derive(self.planned.seed, "sampling", turn),
            experts_from=self.tokens.routed if self.limits.routing_replay else None,
            returns_kept=self.limits.returns_kept,
        )
        span = self.tokens.spans[-1]
        prompt, shown = self.tokens.ids[span].tolist(), self.tokens.images_in(span)
        completion = await self._ask(prompt, sampling, shown)
        if self.limits.routing_replay and completion.experts is None and completion.tokens:
            raise ConfigError(
                "rollout.routing_replay needs the experts of each token, and the engine does not "
                "return them (Completion.experts): leave it out, or choose another engine"
            )
        sampled = completion.tokens, completion.logprobs, completion.version
        recorded = completion.experts, completion.kept
        self.tokens = self.tokens.with_sampled(*sampled, turn, *recorded)
        self._written = completion.tokens
        return completion

    @property
    def _context_length(self) -> int:
        span = self.tokens.spans[-1]
        return int(span.stop - span.start)

    async def _ask(
        self, prompt: Sequence[int], sampling: Sampling, shown: Sequence[Image] = ()
    ) -> Completion:
        images = {"images": shown} if shown else {}  # an engine of words may lack the argument
        try:
            async with asyncio.timeout(PATIENCE * self.limits.max_seconds):
                with self._doing(Doing.SAMPLING):
                    return await self.engine.generate(
                        prompt, sampling, session=self.session, **images
                    )
        except TimeoutError:
            # Far beyond an action's deadline: waiting for other episodes is no failure.
            raise EpisodeEnded(Outcome.INFRASTRUCTURE_MODEL, "the engine hangs") from None
        except InfrastructureError as error:
            raise EpisodeEnded(Outcome.INFRASTRUCTURE_MODEL, str(error)) from error

    async def _observe(self, observation: Observation, step: Step, turn: int) -> None:
        """Show what came back; in a new context if this one has no room for it and what follows."""
        if step.forgets:
            self.tokens = self.tokens.with_context(forget(self.tokens))
        extend = partial(self.scaffold.extend, observation, self._written, step.results)
        segments = self._rendered(extend, Outcome.INFRASTRUCTURE_STEP)
        if not self._fits(segments) and self.limits.context != "fail":
            if self.limits.context == "summarise":
                await self._summarise(turn + 1)
                # Again, since they follow the summary now.
                segments = self.scaffold.extend(observation, self._written, step.results)
            room = int(KEPT * self.limits.max_tokens) - _length(segments)
            kept = COMPACTIONS[self.limits.context](self.tokens, room)
            self.tokens = self.tokens.with_context(kept)
        if not self._fits(segments):
            raise EpisodeEnded(Outcome.TRUNCATED_TOKENS)
        self.tokens = self.tokens.with_segments(segments, turn)

    def _rendered(self, render: Callable[[], list[Segment]], failure: Outcome) -> list[Segment]:
        try:
            return render()
        except InfrastructureError as error:
            raise EpisodeEnded(failure, str(error)) from error

    async def _summarise(self, turn: int) -> None:
        """Ask for a summary: a turn like any other, but that the environment does not see it."""
        # The summary is a turn, and is of use only if another one can follow.
        if turn + 1 >= self.limits.max_turns:
            raise EpisodeEnded(self._out_of_turns())
        # As an observation, the request belongs to the turn before it.
        self.tokens = self.tokens.with_segments(self._request(self._written), turn - 1)
        completion = await self._sample(turn)
        text = self.scaffold.parse(completion.tokens).text
        self.turns.append(Turn(Action(text, summary=True)))
        if completion.stop_reason == StopReason.CONTEXT:
            raise EpisodeEnded(Outcome.TRUNCATED_CONTEXT)

    def _request(self, written: Sequence[int]) -> list[Segment]:
        return self.scaffold.extend(Observation(REQUEST, Source.USER), written)

    def _fits(self, segments: Sequence[Segment]) -> bool:
        """Whether the context has room for them and what follows: a token, a whole turn, or also a
        request for a summary, and the summary."""
        reserve = 1 if self.limits.context == "fail" else self.limits.max_turn_tokens
        if self.limits.context == "summarise":
            # (): an unfinished turn, after which the request is longest, since it closes the turn.
            reserve += _length(self._request(())) + self.limits.max_turn_tokens
        return self._context_length + _length(segments) + reserve <= self.limits.max_tokens


def _length(segments: Sequence[Segment]) -> int:
    return sum(len(segment.tokens) for segment in segments)
