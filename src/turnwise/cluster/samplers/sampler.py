"""A sampler: it samples with the embedded engine for the process of the run.

Requests of one moment are taken together, so that an engine in lockstep finds all sessions that
belong together. Not here: who starts it (`cluster/places.py`), and the process of the run's side
(`lane.py`, `engine.py`).
"""

import asyncio
import os
import sys
from collections.abc import Sequence
from typing import Any

from turnwise.cluster import serving
from turnwise.cluster.frames import BUG, Alive, Failed, portable, receive, send
from turnwise.cluster.samplers.frames import (
    Ask,
    Cancel,
    Close,
    Frame,
    Load,
    Loaded,
    Open,
    Piece,
    Sampled,
    Setup,
)
from turnwise.cluster.serving import Work
from turnwise.engines.base import Engine
from turnwise.threads import configure_threads

BEAT = 5.0
"""Seconds between two signs of life."""


def work(host: str, port: int, secret: bytes) -> None:
    """Be a sampler, in the main thread of a process of its own."""
    asyncio.run(serve(host, port, secret))


async def serve(host: str, port: int, secret: bytes) -> None:
    """Sample what the process of the run asks for, until it ends the connection."""
    await serving.serve(host, port, secret, _built)


def _built(setup: Setup) -> tuple[str, Work]:
    """Build the parts where the process of the run has built its own; torch is imported here, after
    the threads are set."""
    if os.path.isdir(setup.folder):
        os.chdir(setup.folder)
    sys.path += [place for place in setup.path if place not in sys.path]
    configure_threads(setup.recipe.threads)
    from turnwise.cluster.samplers.parts import engine_of, facts_of

    engine = engine_of(setup.recipe)

    async def work(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await Sampler(engine, reader, writer).work()
        finally:
            await engine.stop()

    return facts_of(setup.recipe), work


class Sampler:
    """The requests of one connection."""

    def __init__(
        self, engine: Engine, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        from turnwise.cluster.samplers.weights import Arriving

        self._engine, self._reader, self._writer = engine, reader, writer
        self._said: asyncio.Queue[Frame | Load] = asyncio.Queue()
        self._turns: dict[str, asyncio.Task[None]] = {}
        """The last turn of each session."""
        self._arriving = Arriving()

    async def work(self) -> None:
        """Raises IncompleteReadError or OSError when the connection has ended."""
        tasks = [asyncio.create_task(self._beat()), asyncio.create_task(self._follow())]
        for task in tasks:
            task.add_done_callback(self._report)
        try:
            while True:
                said = await receive(self._reader)
                if isinstance(said, Piece):
                    self._arriving.put(said, await self._reader.readexactly(said.size))
                else:
                    self._said.put_nowait(said)
        finally:
            for task in (*tasks, *self._turns.values()):
                task.cancel()

    def _report(self, task: "asyncio.Task[None]") -> None:
        """Let the process of the run raise what ended a task that has no end of its own."""
        if not task.cancelled() and (error := task.exception()) is not None:
            send(self._writer, Failed(BUG, portable(error)))

    async def _follow(self) -> None:
        """Do what is said, in that order."""
        while True:
            said = await self._said.get()
            if isinstance(said, Load):
                await self._load(said.version)
            else:
                await self._take(said)

    async def _load(self, version: int) -> None:
        try:
            await self._engine.load_weights(self._arriving.take(), version)
        except Exception as error:  # noqa: BLE001 - the process of the run raises it
            send(self._writer, Failed(-1, portable(error)))
        else:
            send(self._writer, Loaded(version))

    async def _take(self, frame: Frame) -> None:
        """Do the requests of one moment. A session that is still in its last turn is waited for:
        what is said once more to a new sampler comes all at once."""
        for one in frame:
            if isinstance(one, Cancel) and one.session in self._turns:
                self._turns[one.session].cancel()
        later = {one.session for one in frame if isinstance(one, Ask | Close)}
        turns = [self._turns[session] for session in later & self._turns.keys()]
        if turns:
            await asyncio.wait(turns)
        for one in frame:
            if isinstance(one, Open):
                self._engine.open(one.session)
            elif isinstance(one, Close):
                self._engine.close(one.session)
                self._turns.pop(one.session, None)
            elif isinstance(one, Ask):
                self._turns[one.session] = asyncio.create_task(self._sample(one))

    async def _sample(self, ask: Ask) -> None:
        images: dict[str, Sequence[Any]] = {"images": ask.images} if ask.images else {}
        prompt = ask.prompt.tolist()
        try:
            completion = await self._engine.generate(
                prompt, ask.sampling, session=ask.session, **images
            )
        except Exception as error:  # noqa: BLE001 - the process of the run raises it
            send(self._writer, Failed(ask.number, portable(error)))
        else:
            send(self._writer, Sampled(ask.number, completion))

    async def _beat(self) -> None:
        """Give signs of life from between two forward passes."""
        from turnwise.engines.threaded import ThreadedEngine

        while True:
            if isinstance(self._engine, ThreadedEngine):
                await self._engine.between_passes()
            send(self._writer, Alive())
            await asyncio.sleep(BEAT)
