"""The process of the run's side of one worker: the episodes that it plays.

An episode that is played again asks for the same turns as long as its environment repeats: it gets
what was sampled for them, and from the first other prompt on, new ones. So the engine samples
nothing twice, and a run in which workers die is the run in which none do, where environments are
deterministic.
"""

import asyncio
import hashlib
import itertools
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace

from turnwise.engines.base import Completion, Sampling
from turnwise.rollout.loop import EpisodeEnded
from turnwise.types import Trajectory
from turnwise_cluster.workers.episode import Assignment, Sample
from turnwise_cluster.workers.frames import (
    Alive,
    Asked,
    Cancel,
    Failed,
    Play,
    Played,
    Sampled,
    send,
)

GRACE = 30.0
"""Seconds beyond its own deadlines after which a worker counts as hung."""
CALLS = 5
"""Calls of an environment between two messages of an episode, at most, each of which has
`rollout.max_seconds`: a step and a snapshot, or a step, a verdict and a close."""
CANCELLED = 10.0
"""Seconds that a cancelled episode has to say what was played of it."""


class WorkerLostError(Exception):
    """The worker that was to do something is gone; the text says which, and why."""


Message = Asked | Played | Failed | WorkerLostError


@dataclass
class Replay:
    """The policy's turns of one episode. Example: `await replay.turn(asked)`; `replay.rewind()`."""

    sample: Sample
    _sampled: list[tuple[bytes, Sampling, Completion]] = field(default_factory=list)
    """With a digest of each prompt."""
    _next: int = 0

    async def turn(self, asked: Asked) -> Completion:
        """The turn that is asked for, sampled unless it was before. Raises as `sample`."""
        prompt = hashlib.sha256(asked.prompt.tobytes()).digest()
        if self._next < len(self._sampled):
            before, sampling, completion = self._sampled[self._next]
            if (before, sampling) == (prompt, asked.sampling):
                self._next += 1
                return completion
            del self._sampled[self._next :]
        completion = await self.sample(asked.prompt.tolist(), asked.sampling)
        self._sampled.append((prompt, asked.sampling, completion))
        self._next += 1
        return completion

    def rewind(self) -> None:
        """The episode begins anew."""
        self._next = 0


@dataclass(eq=False)
class Link:
    """A worker that is ready."""

    name: str
    """For messages: "worker 2 (process 4711 on node-b)"."""
    writer: asyncio.StreamWriter
    _playing: dict[int, "asyncio.Queue[Message]"] = field(default_factory=dict)
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    @property
    def load(self) -> int:
        """Episodes under way."""
        return len(self._playing)

    def take(self, message: Asked | Played | Failed | Alive) -> None:
        """Hand a message to its episode, if that still waits."""
        if not isinstance(message, Alive) and message.number in self._playing:
            self._playing[message.number].put_nowait(message)

    def lose(self, reason: str) -> None:
        """Tell all episodes that the worker is gone."""
        for waiting in self._playing.values():
            waiting.put_nowait(WorkerLostError(f"{self.name} was lost: {reason}"))

    async def play(
        self, assignment: Assignment, replay: Replay, keep: Callable[[Trajectory], None]
    ) -> None:
        """Play an episode; `keep` is given what was played, also when this is cancelled. Raises
        WorkerLostError, and what is a bug or a user's mistake there."""
        number, begun = next(self._numbers), time.monotonic()
        messages = self._playing[number] = asyncio.Queue()
        send(self.writer, Play(number, assignment))
        try:
            while True:
                message = await self._next(messages, assignment)
                if isinstance(message, Played):
                    keep(self._placed(message.trajectory, begun))
                    return
                send(self.writer, await _sampled(message, replay))
        except asyncio.CancelledError:
            send(self.writer, Cancel(number))
            with suppress(TimeoutError):
                async with asyncio.timeout(CANCELLED):
                    # It may have asked for a turn before it heard of that.
                    while isinstance(last := await messages.get(), Asked):
                        pass
                    if isinstance(last, Played):
                        keep(last.trajectory)
            raise
        finally:
            del self._playing[number]

    def _placed(self, played: Trajectory, begun: float) -> Trajectory:
        """The trajectory with its times by this process's clock, and where it was played."""
        if played.times is None:
            return played
        return replace(played, times=replace(played.times, begun=begun, process=self.name))

    async def _next(
        self, messages: "asyncio.Queue[Message]", assignment: Assignment
    ) -> Asked | Played:
        seconds = CALLS * assignment.limits.max_seconds + GRACE
        try:
            async with asyncio.timeout(seconds):
                message = await messages.get()
        except TimeoutError:
            planned = assignment.planned
            raise WorkerLostError(
                f"{self.name} has said nothing of {planned.id} for {seconds:g} s"
            ) from None
        if isinstance(message, WorkerLostError):
            raise message
        if isinstance(message, Failed):
            raise message.error
        return message


async def _sampled(asked: Asked, replay: Replay) -> Sampled:
    try:
        return Sampled(asked.number, await replay.turn(asked))
    except EpisodeEnded as end:
        return Sampled(asked.number, None, end.problem)
