"""A worker: it plays episodes whose tokens the process of the run samples.

Its event loop has the main thread, so that code which blocks it is interrupted there as anywhere
(`interrupt.py`). When the connection ends, so does the worker. Not here: who starts it
(`launcher.py`), and the process of the run's side (`link.py`, `pool.py`).
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from turnwise.engines.base import Completion, Sampling
from turnwise.errors import InfrastructureError, NotSupportedError
from turnwise.tokens import Image
from turnwise_cluster import serving
from turnwise_cluster.frames import Alive, Failed, portable, receive, send
from turnwise_cluster.serving import CLOSING, Work
from turnwise_cluster.workers.frames import Asked, Cancel, Play, Played, Sampled, Setup
from turnwise_cluster.workers.parts import Parts, facts_of, parts_of

BEAT = 5.0
"""Seconds between two signs of life."""


def work(host: str, port: int, secret: bytes) -> None:
    """Be a worker, in the main thread of a process of its own."""
    asyncio.run(serve(host, port, secret))


async def serve(host: str, port: int, secret: bytes) -> None:
    """Play what the process of the run asks for, until it ends the connection."""
    await serving.serve(host, port, secret, _built)


def _built(setup: Setup) -> tuple[str, Work]:
    parts = parts_of(setup)

    async def work(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await Worker(parts, reader, writer).work()

    return facts_of(parts.environment), work


class Worker:
    """The episodes of one connection."""

    def __init__(
        self, parts: Parts, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._parts, self._reader, self._writer = parts, reader, writer
        self._playing: dict[int, asyncio.Task[None]] = {}
        self._asked: dict[int, asyncio.Future[Sampled]] = {}
        self._unwanted: set[int] = set()
        """Episodes that the process of the run has cancelled."""

    async def work(self) -> None:
        """Raises IncompleteReadError or OSError when the connection has ended, and everything is
        released."""
        beating = asyncio.create_task(self._beat())
        try:
            while True:
                self._take(await receive(self._reader))
        finally:
            for task in (beating, *self._playing.values()):
                task.cancel()
            if self._playing:
                await asyncio.wait(self._playing.values(), timeout=CLOSING)

    async def ask(self, number: int, prompt: Sequence[int], sampling: Sampling) -> Completion:
        """The policy's next turn in an episode. Raises InfrastructureError where it has none."""
        answered: asyncio.Future[Sampled] = asyncio.get_running_loop().create_future()
        self._asked[number] = answered
        send(self._writer, Asked(number, np.array(prompt, np.int32), sampling))
        sampled = await answered
        if sampled.completion is None:
            raise InfrastructureError(sampled.problem)
        return sampled.completion

    def _take(self, message: Play | Sampled | Cancel) -> None:
        number = message.number
        if isinstance(message, Play):
            self._playing[number] = asyncio.create_task(self._play(message))
        elif isinstance(message, Cancel):
            if number in self._playing:
                self._unwanted.add(number)
                self._playing[number].cancel()
        elif number in self._asked and not self._asked[number].done():
            self._asked[number].set_result(message)

    async def _play(self, play: Play) -> None:
        number = play.number
        episode = self._parts.episode(play.assignment, WaitingEngine(self, number))
        try:
            await episode.run()
        except asyncio.CancelledError:
            if number in self._unwanted:  # else the worker ends, and another one plays it again
                send(self._writer, Played(number, episode.trajectory))
            raise
        except Exception as error:  # noqa: BLE001 - the process of the run raises it
            send(self._writer, Failed(number, portable(error)))
        else:
            send(self._writer, Played(number, episode.trajectory))
        finally:
            del self._playing[number]
            self._asked.pop(number, None)
            self._unwanted.discard(number)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT)
            send(self._writer, Alive())


class WaitingEngine:
    """The engine of one episode, which asks the process of the run; all else about the engine is
    that process's. See Engine."""

    def __init__(self, worker: Worker, number: int) -> None:
        self._worker, self._number = worker, number

    @property
    def version(self) -> int:
        """Not known here; raises NotSupportedError. Completions have theirs."""
        raise NotSupportedError("a worker does not know the version of the weights")

    def open(self, session: str) -> None:
        """Do nothing."""

    def close(self, session: str) -> None:
        """Do nothing."""

    async def generate(
        self,
        prompt: Sequence[int],
        sampling: Sampling,
        *,
        session: str,
        images: Sequence[Image] = (),
    ) -> Completion:
        """Sample one turn; raises InfrastructureError with what the engine says."""
        return await self._worker.ask(self._number, prompt, sampling)

    async def load_weights(self, weights: Mapping[str, Any], version: int) -> None:
        """Do nothing."""

    async def sleep(self) -> None:
        """Do nothing."""

    async def stop(self) -> None:
        """Do nothing."""
