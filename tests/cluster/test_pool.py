"""Processes of a pool: what becomes of those that wait when one cannot be started any more.

They are connections of this process. Not here: what is done with workers and samplers (`workers`,
`samplers`).
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from turnwise.cluster.frames import BUG, Failed, Ready, receive, send
from turnwise.cluster.pool import ProcessPool

Work = Callable[[asyncio.StreamWriter], Awaitable[None]]
"""What a process does when it is ready; then it is gone."""


class Launched:
    """See Launcher. Each start does the next work; connections stay open behind it."""

    host = "127.0.0.1"

    def __init__(self, *works: Work) -> None:
        self.works = list(works)
        self.open: list[asyncio.StreamWriter] = []
        self.forgotten = False

    async def has_room(self, index: int) -> bool:
        """See Launcher. Raises KeyError where that is not known any more."""
        if self.forgotten:
            raise KeyError("state")
        return True

    async def run(self, index: int, port: int, secret: bytes) -> str:
        """See Launcher."""
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

    def __init__(self, launcher: Launched) -> None:
        super().__init__(launcher, 1, 120.0)
        self._silence = 120.0
        self.lost: list[str] = []
        self.given_up = asyncio.Event()
        self.prepared = asyncio.Event()
        """Whether a process can become ready."""
        self.prepared.set()
        self.preparing = asyncio.Event()

    def _link(self, index: int, name: str, writer: asyncio.StreamWriter) -> One:
        return One(self, writer)

    async def _prepare(self, link: One) -> None:
        self.preparing.set()
        await self.prepared.wait()

    def _gave_up(self) -> None:
        self.given_up.set()

    def check(self) -> None:
        """Raise what those that wait are told."""
        self._check_left(1)


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
            await asyncio.wait_for(pool.given_up.wait(), 60)
            with pytest.raises(KeyError, match="state"):
                pool.check()

    asyncio.run(main())


def test_a_mistake_that_ends_the_tending_is_what_is_said(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async def bug(writer: asyncio.StreamWriter) -> None:
            await ready.wait()
            send(writer, Failed(BUG, RuntimeError("no such page")))
            await forever(writer)

        ready = asyncio.Event()
        async with started(Launched(bug)) as pool:
            ready.set()
            await asyncio.wait_for(pool.given_up.wait(), 60)
            with pytest.raises(RuntimeError, match="no such page"):
                pool.check()

    asyncio.run(main())
    assert caplog.messages == ["one 0: no such page"]


@pytest.mark.slow
def test_a_process_that_is_prepared_after_its_end_is_lost() -> None:
    """Its connection is still open, as when it hangs: what has prepared it goes on with others."""

    async def main() -> None:
        async def dying(_: asyncio.StreamWriter) -> None:
            await pool.preparing.wait()

        async def in_its_place(writer: asyncio.StreamWriter) -> None:
            pool.prepared.set()
            await forever(writer)

        launcher = Launched(dying, in_its_place)
        pool = Ones(launcher)
        pool.prepared.clear()
        try:
            await asyncio.wait_for(pool.start(), 120)
            assert pool.lost == ["killed"]
        finally:
            for writer in launcher.open:
                writer.close()
            await pool.stop()

    asyncio.run(main())
