"""A bound on the episodes under way, shared by everything that is played at the same time.

Episodes of an earlier step get a place first, so that the step which is learned from next does not
wait for later ones.
"""

import asyncio
import heapq
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

Action = Callable[[], None]


@dataclass(order=True)
class _Waiting:
    priority: int
    arrival: int
    given: asyncio.Future[None] = field(compare=False)
    enter: Action = field(compare=False)


class PrioritySemaphore:
    """Example: `async with semaphore.held(priority=3): ...`."""

    def __init__(self, count: int) -> None:
        """Raises ValueError for a count below 1."""
        if count < 1:
            raise ValueError(f"a semaphore of {count}: there must be at least 1 place")
        self.count = count
        self._free = count
        self._queue: list[_Waiting] = []
        self._arrivals = itertools.count()

    @asynccontextmanager
    async def held(
        self, priority: int, enter: Action = lambda: None, leave: Action = lambda: None
    ) -> AsyncIterator[None]:
        """Hold a place, at once while one is free; else the lowest priority is served first, then
        the first to arrive.

        `enter` is called as the place is given, `leave` before it is released: between `leave` of
        one holder and `enter` of the next nothing runs.
        """
        await self._acquire(priority, enter, leave)
        try:
            yield
        finally:
            # In this order: the release calls the next holder's `enter`.
            leave()
            self._release()

    async def _acquire(self, priority: int, enter: Action, leave: Action) -> None:
        if self._free:  # then nothing waits: a place that is released goes to what waits
            self._free -= 1
            enter()
            return
        given = asyncio.get_running_loop().create_future()
        heapq.heappush(self._queue, _Waiting(priority, next(self._arrivals), given, enter))
        try:
            await given
        except asyncio.CancelledError:
            if not given.cancelled():  # cancelled just when the place was given
                leave()
                self._release()
            raise

    def _release(self) -> None:
        while self._queue:
            first = heapq.heappop(self._queue)
            if not first.given.done():  # else it was cancelled
                first.enter()
                first.given.set_result(None)
                return
        self._free += 1
