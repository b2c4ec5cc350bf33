"""Processes of a pool: what becomes of those that wait when one cannot be started any more.

They are connections of this process. Not here: what is done with workers (`workers`).
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from turnwise.errors import RunStoppedError
from turnwise_cluster.frames import Ready, receive, send
from turnwise_cluster.pool import ProcessPool

Work = Callable[[asyncio.StreamWriter], Awaitable[None]]
"""What a process does when it is ready; then it is gone."""


class Launched:
    """See Launcher. Each start does the next work; connections stay open behind it."""

    host = "127.0.0.1"

    def __init__(self, *works: Work) -> None:
        self.works = list(works)
        self.open: list[asyncio.StreamWriter] = []
        self.forgotten = False

    def run(self, index: int, port: int, secret: bytes) -> Coroutine[Any, Any, str]:
        """See Launcher. Raises KeyError where nothing can be started any more."""
        if self.forgotten:
            raise KeyError("state")
        return self._run(secret, port)

    async def _run(self, secret: bytes, port: int) -> str:
        reader, writer = await asyncio.open_connection(self.host, port)
        self.open.append(writer)
        writer.write(secret)
        await receive(reader)
        send(writer, Ready("here", 1, ""))
        await self.works.pop(0)(writer)
        return "killed"


class One:
    """See ProcessLink."""

    name = "one"

    def __init__(self, pool: "Ones", writer: asyncio.StreamWriter) -> None:
        self.pool, self.writer = pool, writer

    def take(self, message: Any) -> None:
        """See ProcessLink."""

    def lose(self, reason: str) -> None:
        """See ProcessLink."""
        self.pool.lost.append(reason)


class Ones(ProcessPool[One]):
    """A pool that notes what it is told."""

    kind = "one"

    def __init__(self, launcher: Launched, start_seconds: float = 120.0) -> None:
        super().__init__(launcher, 1, start_seconds)
        self._silence = 120.0
        self.lost: list[str] = []

    def _link(self, name: str, writer: asyncio.StreamWriter) -> One:
        return One(self, writer)

    async def told(self) -> None:
        """Raise what those that wait are told, when it is time."""
        while True:
            self._check_left(1)
            await self._change()


@asynccontextmanager
async def started(launcher: Launched) -> AsyncIterator[Ones]:
    """A pool whose process is ready."""
    pool = Ones(launcher)
    try:
        await asyncio.wait_for(pool.start(), 120)
        yield pool
    finally:
        for writer in launcher.open:
            writer.close()
        await pool.stop()


async def forever(_: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


def test_an_error_that_ends_the_tending_of_a_process_reaches_those_that_wait() -> None:
    async def main() -> None:
        ending = asyncio.Event()

        async def until_then(_: asyncio.StreamWriter) -> None:
            await ending.wait()
            launcher.forgotten = True

        launcher = Launched(until_then)
        async with started(launcher) as pool:
            ending.set()
            with pytest.raises(KeyError, match="state"):
                await asyncio.wait_for(pool.told(), 60)

    asyncio.run(main())


class Late(Launched):
    """A process that says it is ready when it is to end."""

    async def _run(self, secret: bytes, port: int) -> str:
        await asyncio.sleep(0.2)
        reader, writer = await asyncio.open_connection(self.host, port)
        writer.write(secret)
        await receive(reader)
        try:
            await forever(writer)
        finally:
            send(writer, Ready("here", 1, ""))
            await writer.drain()
            await reader.read()
            writer.close()


def test_a_process_that_is_ready_after_its_deadline_did_not_start() -> None:
    async def main() -> None:
        pool = Ones(Late(), start_seconds=0.4)
        with pytest.raises(RunStoppedError, match="one 0 could not be started 3 times: it was not"):
            await asyncio.wait_for(pool.start(), 20)
        await pool.stop()

    asyncio.run(main())
