"""A bounded number of episodes under way, shared by all that is played at the same time.

Who asks for a seat on an earlier occasion gets one first, so that the step which is learned from
next does not wait for later ones. Not here: cache rows of an engine (`engines/sessions.py`).
"""

import asyncio
import heapq
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Seats:
    """Example: `async with seats.taken(occasion=3): await episode.run()`."""

    def __init__(self, count: int) -> None:
        """Raises ValueError for less than one seat."""
        if count < 1:
            raise ValueError(f"{count} seats: there must be at least 1")
        self.count = count
        self._free = count
        self._queue: list[tuple[int, int, asyncio.Future[None]]] = []
        self._arrivals = itertools.count()

    @asynccontextmanager
    async def taken(self, occasion: int) -> AsyncIterator[None]:
        """Hold a seat. Does not suspend while one is free; else the lowest occasion comes first,
        and of one occasion who came first."""
        await self._take(occasion)
        try:
            yield
        finally:
            self._leave()

    async def _take(self, occasion: int) -> None:
        if self._free:  # then nobody waits: a seat that is left goes to who waits
            self._free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        heapq.heappush(self._queue, (occasion, next(self._arrivals), turn))
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # cancelled just when the seat was given
                self._leave()
            raise

    def _leave(self) -> None:
        while self._queue:
            *_, turn = heapq.heappop(self._queue)
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
