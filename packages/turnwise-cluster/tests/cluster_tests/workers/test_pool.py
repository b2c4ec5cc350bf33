"""Workers whose start or tending fails: what those that wait are told.

They are connections of this process.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from turnwise.errors import RunStoppedError
from turnwise_cluster.workers.frames import Ready, receive, send
from turnwise_cluster.workers.pool import WorkerPool


class Launched:
    """See Launcher. A worker is ready, or says so when it is `late` and is to end; it works until
    `ending`, after which nothing can be started any more."""

    host = "127.0.0.1"

    def __init__(self, late: bool) -> None:
        self.late, self.ending, self.starts = late, asyncio.Event(), 0

    def run(self, index: int, port: int, secret: bytes) -> Coroutine[Any, Any, str]:
        """See Launcher. Raises KeyError where nothing can be started any more."""
        if self.ending.is_set():
            raise KeyError("state")
        self.starts += 1
        return self._run(secret, port)

    async def _run(self, secret: bytes, port: int) -> str:
        reader, writer = await asyncio.open_connection(self.host, port)
        writer.write(secret)
        await receive(reader)
        try:
            if not self.late:
                send(writer, Ready("here", 1, ""))
            await self.ending.wait()
        finally:
            if self.late:
                send(writer, Ready("here", 1, ""))
                await writer.drain()
                await reader.read()
            writer.close()
        return "killed"


def pool_of(launched: Launched, start_seconds: float) -> WorkerPool:
    pool = WorkerPool(launched, 1, start_seconds)
    pool._silence = 120.0
    return pool


async def test_an_error_that_ends_the_tending_of_a_worker_reaches_those_that_wait() -> None:
    launched = Launched(late=False)
    pool = pool_of(launched, 120.0)
    try:
        await asyncio.wait_for(pool.start(), 120)
        launched.ending.set()
        while pool._links:
            await asyncio.sleep(0.01)
        with pytest.raises(KeyError, match="state"):
            await asyncio.wait_for(pool._least_loaded(), 60)
    finally:
        await pool.stop()


@pytest.mark.long
async def test_a_worker_that_is_ready_after_its_deadline_did_not_start() -> None:
    launched = Launched(late=True)
    pool = pool_of(launched, 0.4)
    message = r"worker 0 could not be started 3 times: .* within cluster\.start_seconds = 0\.4$"
    with pytest.raises(RunStoppedError, match=message):
        await asyncio.wait_for(pool.start(), 20)
    assert launched.starts == 3
    await pool.stop()
