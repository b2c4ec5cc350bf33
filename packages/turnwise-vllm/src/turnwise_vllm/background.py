"""Tasks beside the requests of an engine, and what waits for a change."""

import asyncio
from collections.abc import Coroutine
from typing import Any


class Background:
    """Example: `background.start(watch())`, then `background.check(); await background.change()`
    until something is so."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._bug: BaseException | None = None

    def start(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Run a task; its exception reaches every caller of `check`."""
        task = asyncio.create_task(work)
        self._tasks.add(task)

        def noticed(ended: "asyncio.Task[None]") -> None:
            self._tasks.discard(ended)
            if not ended.cancelled() and ended.exception() is not None:
                self._bug = ended.exception()
                self.tell()

        task.add_done_callback(noticed)
        return task

    def check(self) -> None:
        """Raise the error that ended a task."""
        if self._bug is not None:
            raise self._bug

    async def change(self) -> None:
        """Wait for the next `tell`."""
        await self._changed.wait()

    def tell(self) -> None:
        """Wake everything that waits for a change."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def stop(self) -> None:
        """Cancel all tasks, and wait for their end."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
