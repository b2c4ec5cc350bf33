"""Interrupts a user's code that blocks the event loop: it never lets go, so no timeout can end it.

While any work is watched, a thread asks the loop to answer. A loop that does not for as long as the
work may take is blocked, and where a user's code does that, it gets an exception, at the line where
it stands. It comes by a signal, which ends a sleep and an endless loop, and no code in C, such as a
slow regular expression. Only a loop of the main thread can be interrupted. Work that waits as it
should is ended by `asyncio.timeout`.
"""

import asyncio
import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any, Protocol, TypeVar

from turnwise.errors import DeadlineError

SIGNAL = signal.SIGUSR2
"""Taken only where no other handler is installed; SIGUSR1 ends runs (`stopping.py`)."""
POLL = 0.25
"""Seconds between two looks at the loop."""
_callers: set[CodeType] = set()
"""Functions that call a user's code: of an episode, of a part of the reward, of an agent."""
OURS = ("turnwise.engines", "turnwise.forward", "turnwise.learning")
"""Packages that such code may wait for, and that may compute for long."""
_computing: set[CodeType] = set()
"""Functions of other packages that are as those."""


class _HasCode(Protocol):
    __code__: CodeType

    def __call__(self, *given: Any, **named: Any) -> Any: ...


Function = TypeVar("Function", bound=_HasCode)


class _Watch:
    """Asks a loop of the main thread, whenever there is watched work, for as long as it lives."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.limits: list[float] = []
        """Seconds that each piece of watched work may take."""
        self.raised = threading.Event()
        """Set where a signal has raised."""

    def run(self, thread: int) -> None:
        """Send the signal whenever the loop has not answered for the shortest of the limits."""
        while not self.loop.is_closed():
            time.sleep(POLL)
            if self.limits:
                self._ask(thread)

    def _ask(self, thread: int) -> None:
        answered, asked = threading.Event(), time.monotonic()
        self.raised.clear()
        try:
            self.loop.call_soon_threadsafe(answered.set)
        except RuntimeError:  # the loop was closed
            return
        while not (answered.wait(POLL) or self.raised.is_set() or self.loop.is_closed()):
            # A copy: the loop's thread changes the list. Without watched work there is no limit.
            if time.monotonic() - asked > min([*self.limits], default=math.inf):
                # Again at each look: it may have met code of ours, and the user's comes after it.
                # To that thread, since only there it ends a sleep.
                signal.pthread_kill(thread, SIGNAL)


ANYTHING = (Exception, SystemExit, asyncio.CancelledError)
"""A user's code may raise these. A CancelledError can be of a task or future of its own."""


def raise_cancelled(error: BaseException) -> None:
    """Raise a CancelledError again by which the present task is to end."""
    task = asyncio.current_task()
    if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
        raise error


def calls_user_code(function: Function) -> Function:
    """Decorate a function that calls a user's code: that is interrupted, the function is not."""
    _callers.add(function.__code__)
    return function


def computes(function: Function) -> Function:
    """Decorate a function, of a package such as a wing, that a user's code may wait for, and that
    may compute for long: it is not interrupted, nor is what it calls."""
    _computing.add(function.__code__)
    return function


_watches: list[_Watch] = []
"""The watch of the present loop, if it has one: its thread is not begun anew for each work."""


@contextmanager
def interrupted_after(seconds: float) -> Iterator[None]:
    """Inside, a user's code that blocks the loop for longer gets a DeadlineError; main thread."""
    loop = asyncio.get_running_loop()
    if not _watches or _watches[0].loop is not loop:
        if not _installed():  # asked once for a loop: it takes longer than all the rest here
            yield
            return
        _watches[:] = [_Watch(loop)]
        thread = threading.get_ident()
        threading.Thread(target=_watches[0].run, args=(thread,), daemon=True).start()
    limits = _watches[0].limits
    limits.append(seconds)
    try:
        yield
    finally:
        # Which of several equal ones does not matter.
        limits.remove(seconds)


def _installed() -> bool:
    """Whether the signal is ours, or can be."""
    if threading.current_thread() is not threading.main_thread():
        return False
    found = signal.getsignal(SIGNAL)
    if found is signal.SIG_DFL:
        signal.signal(SIGNAL, _interrupt)
        return True
    return found is _interrupt


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Raise in the code that runs, if a user's code has called it."""
    place = frame
    while frame is not None and place is not None:
        name = frame.f_globals.get("__name__", "")
        if name.startswith(OURS) or frame.f_code in _computing:
            return
        # A marked function on top is our own code that waits: only its callees are a user's.
        if frame.f_code in _callers and frame is not place:
            # First, so that the watch does not send another one into the handling of this.
            _watches[0].raised.set()
            where = f"{place.f_code.co_filename}:{place.f_lineno}"
            raise DeadlineError(f"it blocks the event loop at {where}: await, or use a thread")
        frame = frame.f_back
