"""Deadlines of work that shares what is slow: waiting for others does not count.

Several pieces that are done at once give each other time as they end (`Deadlines`); one piece's
clock stops while it waits for a lock (`deadline`, `alone`).
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from turnwise.interrupt import interrupted_after
from turnwise.tools.tool import in_thread

Result = TypeVar("Result")

POLL = 0.01
"""Seconds between two looks at a lock that threads share."""
_limit: ContextVar[asyncio.Timeout | None] = ContextVar("_limit", default=None)
"""The deadline of the work under way in this task."""


@asynccontextmanager
async def deadline(seconds: float) -> AsyncIterator[None]:
    """End the work inside with TimeoutError after so many seconds, those within `uncounted` left
    out; code that blocks the event loop for as long, with DeadlineError."""
    async with asyncio.timeout(seconds) as limit:
        before = _limit.set(limit)
        try:
            with interrupted_after(seconds):
                yield
        finally:
            _limit.reset(before)


@asynccontextmanager
async def uncounted() -> AsyncIterator[None]:
    """Stop the clock of this task's `deadline` inside, if there is one."""
    limit, loop = _limit.get(), asyncio.get_running_loop()
    when = None if limit is None or limit.expired() else limit.when()
    if limit is None or when is None:
        yield
        return
    left = when - loop.time()
    limit.reschedule(None)
    try:
        yield
    finally:
        limit.reschedule(loop.time() + left)


async def alone(lock: threading.Lock, work: Callable[[], Any]) -> Any:
    """The result of work in a thread that holds the lock until the work ends, whatever becomes of
    the caller; waiting for the lock is `uncounted`."""
    async with uncounted():
        # Not in a thread, which would take the lock even when its caller is gone.
        while not lock.acquire(blocking=False):
            await asyncio.sleep(POLL)

    # Nothing is awaited from here to the thread's start, or a cancellation would keep the lock.
    def held() -> Any:
        try:
            return work()
        finally:
            lock.release()

    return await in_thread(held)


class Deadlines:
    """A deadline for each piece of work: so many seconds from its start, or from the last end of
    another one. Work that queues behind others at one server has as long as it would have alone.

    Example: `await asyncio.gather(*map(Deadlines(30.0).within, pieces))`.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._open: set[asyncio.Timeout] = set()

    async def within(self, work: Awaitable[Result]) -> Result:
        """Return the result of the work. Raises TimeoutError when its time is over, and ends it.
        Work that raises has ended too; work whose time is over gives no time to others."""
        async with asyncio.timeout(self.seconds) as limit:
            self._open.add(limit)
            try:
                with interrupted_after(self.seconds):
                    return await work
            finally:
                self._open.discard(limit)
                if not limit.expired():
                    self._prolong()

    def _prolong(self) -> None:
        """Give all others as long again, from now on."""
        when = asyncio.get_running_loop().time() + self.seconds
        for other in self._open:
            if not other.expired():
                other.reschedule(when)
