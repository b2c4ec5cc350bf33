"""The process of the run's side of one worker: the episodes that it plays.

Not here: which worker plays what, and what becomes of the episodes of a lost one (`pool.py`).
"""

import asyncio
import itertools
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace

from turnwise.rollout.loop import EpisodeEnded
from turnwise.rollout.remote_episode import Assignment
from turnwise.types import Trajectory
from turnwise_cluster.frames import Alive, Failed, send
from turnwise_cluster.pool import ProcessLostError
from turnwise_cluster.workers.frames import Asked, Cancel, Play, Played, Sampled
from turnwise_cluster.workers.replay import Replay

GRACE = 30.0
"""Seconds beyond its own deadlines after which a worker counts as hung."""
CALLS = 5
"""Calls of an environment between two messages of an episode, at most, each of which has
`rollout.max_seconds`: a step and a snapshot, or a step, a verdict and a close."""
CANCELLED = 10.0
"""Seconds that a cancelled episode has to say what was played of it."""

Message = Asked | Played | Failed


@dataclass(eq=False)
class Link:
    """A worker that is ready."""

    name: str
    """For messages: "worker 2 (process 4711 on node-b)"."""
    writer: asyncio.StreamWriter
    _playing: dict[int, "asyncio.Queue[Message | ProcessLostError]"] = field(default_factory=dict)
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    @property
    def load(self) -> int:
        """Episodes under way."""
        return len(self._playing)

    def take(self, message: Message | Alive) -> None:
        """Hand a message to its episode, if that still waits."""
        if isinstance(message, Asked | Played | Failed) and message.number in self._playing:
            self._playing[message.number].put_nowait(message)

    def lose(self, reason: str) -> None:
        """Tell all episodes that the worker is gone."""
        for waiting in self._playing.values():
            waiting.put_nowait(ProcessLostError(f"{self.name} was lost: {reason}"))

    async def play(
        self, assignment: Assignment, replay: Replay, keep: Callable[[Trajectory], None]
    ) -> None:
        """Play an episode; `keep` is given what was played, also when this is cancelled. Raises
        ProcessLostError, and what is a bug or a user's mistake there."""
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
                    await _keep_last(messages, keep)
            raise
        finally:
            del self._playing[number]

    def _placed(self, played: Trajectory, begun: float) -> Trajectory:
        """The trajectory with its times by this process's clock, and where it was played."""
        if played.times is None:
            return played
        return replace(played, times=replace(played.times, begun=begun, process=self.name))

    async def _next(
        self, messages: "asyncio.Queue[Message | ProcessLostError]", assignment: Assignment
    ) -> Asked | Played:
        seconds = CALLS * assignment.limits.max_seconds + GRACE
        try:
            async with asyncio.timeout(seconds):
                message = await messages.get()
        except TimeoutError:
            planned = assignment.planned
            raise ProcessLostError(
                f"{self.name} has said nothing of {planned.id} for {seconds:g} s"
            ) from None
        if isinstance(message, ProcessLostError):
            raise message
        if isinstance(message, Failed):
            raise message.error
        return message


async def _keep_last(
    messages: "asyncio.Queue[Message | ProcessLostError]", keep: Callable[[Trajectory], None]
) -> None:
    """Keep what a cancelled episode was, if its worker says it."""
    while isinstance(message := await messages.get(), Asked):
        pass
    if isinstance(message, Played):
        keep(message.trajectory)


async def _sampled(asked: Asked, replay: Replay) -> Sampled:
    try:
        return Sampled(asked.number, await replay.turn(asked))
    except EpisodeEnded as end:
        return Sampled(asked.number, None, end.problem)
