"""Signals that end a run in good order: it saves what it has and says how to go on.

Ctrl-C is asyncio's: it cancels the main task. SIGTERM, which `kill` and service managers send, and
SIGUSR1, which clusters send before they take a machine away (`sbatch --signal=USR1@120`), do the
same here; each has an exit code of its own. They do not go by way of Ctrl-C's signal, which a shell
lets processes in the background ignore.
"""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

EXIT_CODES = {signal.SIGTERM: 143, signal.SIGUSR1: 75}
"""128 + 15; and EX_TEMPFAIL of sysexits.h: run me again."""

MAIN = "turnwise: main task"
"""Name of the task that a signal cancels."""


class Stopped(KeyboardInterrupt):
    """A signal has ended the work."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.exit_code = EXIT_CODES[signal.Signals(number)]


def name_main_task() -> None:
    """Let a signal cancel the present task."""
    task = asyncio.current_task()
    assert task is not None
    task.set_name(MAIN)


@contextmanager
def stoppable() -> Iterator[None]:
    """Inside, SIGTERM and SIGUSR1 cancel the task that `name_main_task` has named, or else whatever
    this thread does; they leave as Stopped. For the main thread. A second one disturbs nothing."""
    received: list[int] = []

    def receive(number: int, frame: FrameType | None) -> None:
        if received:
            return
        received.append(number)
        # Without a running loop there is no task to cancel: then the exception comes up in place.
        task = _main_task()
        if task is None:
            raise Stopped(number)
        task.cancel()
        task.get_loop().call_soon_threadsafe(lambda: None)  # wakes a loop that waits for input

    before = {number: signal.signal(number, receive) for number in EXIT_CODES}
    try:
        yield
    except asyncio.CancelledError:
        if received:
            raise Stopped(received[0]) from None
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _main_task() -> asyncio.Task[Any] | None:
    """The named task of the event loop that runs in this thread."""
    try:
        tasks = asyncio.all_tasks(asyncio.get_running_loop())
    except RuntimeError:
        return None
    return next((task for task in tasks if task.get_name() == MAIN), None)
