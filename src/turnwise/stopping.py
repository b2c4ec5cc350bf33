"""Signals that end a run in good order: it saves what it has and says how to go on.

Ctrl-C is asyncio's: it cancels the main task. SIGTERM, which `kill` and service managers send, and
SIGUSR1, which clusters send before they take a machine away (`sbatch --signal=USR1@120`), do the
same here; each has an exit code of its own. Not here: what is saved (trainer).
"""

import asyncio
import signal
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

Result = TypeVar("Result")

EXIT_CODES = {signal.SIGTERM: 143, signal.SIGUSR1: 75}
"""128 + 15; and EX_TEMPFAIL of sysexits.h: run me again."""


class Stopped(KeyboardInterrupt):
    """A signal has ended the work."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.exit_code = EXIT_CODES[signal.Signals(number)]


class Stopper:
    """Work that a signal can stop: the task that runs, or else whatever this thread does."""

    def __init__(self) -> None:
        self._received: int | None = None
        self._task: asyncio.Task[Any] | None = None

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run the work, as `asyncio.run` does. Raises Stopped when the work was cancelled
        by a signal, and has done what it does then; KeyboardInterrupt for Ctrl-C."""
        try:
            return asyncio.run(self._watched(work))
        except asyncio.CancelledError:
            if self._received is None:
                raise
            raise Stopped(self._received) from None

    def receive(self, number: int, frame: FrameType | None) -> None:
        """The signal's handler; a second signal does not disturb the saving."""
        if self._received is not None:
            return
        self._received = number
        if self._task is None:
            raise Stopped(number)
        self._task.cancel()
        self._task.get_loop().call_soon_threadsafe(lambda: None)  # wakes it up

    async def _watched(self, work: Coroutine[Any, Any, Result]) -> Result:
        self._task = asyncio.current_task()
        try:
            return await work
        finally:
            self._task = None


@contextmanager
def stoppable() -> Iterator[Stopper]:
    """Inside, SIGTERM and SIGUSR1 end this process's work in good order. For the main thread."""
    stopper = Stopper()
    before = {number: signal.signal(number, stopper.receive) for number in EXIT_CODES}
    try:
        yield stopper
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
