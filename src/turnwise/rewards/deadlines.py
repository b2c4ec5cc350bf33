"""A deadline for each of several pieces of work that are done at once and share what is slow.

Not here: the work (`composition.py`).
"""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

Result = TypeVar("Result")


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
