"""Interrupts a user's code that blocks the event loop: it never lets go, so no timeout can end it.

While any work is watched, a thread asks the loop to answer. A loop that does not for as long as the
work may take is blocked, and where a user's code does that, it gets an exception, at the line where
it stands. It comes by a signal, which ends a sleep and an endless loop; code in C, such as a slow
regular expression, is only named on stderr, and gets its exception when it is back. Only a loop of
the main thread can be interrupted. Not here: work that waits as it should (`asyncio.timeout`).
"""

import asyncio
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from turnwise.errors import DeadlineError

SIGNAL = signal.SIGUSR2
"""Taken only while nobody else has it."""
MARKED = ("_judge", "_guard", "called")
"""Functions of turnwise that call a user's code: of an episode, and of a part of the reward."""
AGAIN, PATIENCE = 1.0, 5
"""Seconds between two signals to code that stays blocked, at most; unheeded ones before it is
named."""
OURS = ("turnwise.engines", "turnwise.forward", "turnwise.learning", "turnwise.judges")
"""Packages that such code may wait for, and that may compute for long."""


class _Watch:
    """Asks one loop, while there is watched work."""

    def __init__(self) -> None:
        self.limits: list[float] = []
        """Seconds that each piece of watched work may take."""
        self.idle = threading.Event()

    def run(self, loop: asyncio.AbstractEventLoop, thread: int) -> None:
        """Send the signal whenever the loop has not answered for the shortest of the limits."""
        while self.limits:
            answered, seconds = threading.Event(), min(self.limits, default=1.0)
            try:
                loop.call_soon_threadsafe(answered.set)
            except RuntimeError:  # the loop was closed
                return
            unheeded = 0
            while not answered.wait(min(seconds, AGAIN) if unheeded else seconds):
                signal.pthread_kill(thread, SIGNAL)
                unheeded += 1
                where = _users_place(sys._current_frames().get(thread))
                if unheeded == PATIENCE and where:
                    print(f"turnwise: {where} blocks the event loop in C", file=sys.stderr)
            self.idle.wait(seconds / 2)


_watch = _Watch()


@contextmanager
def interrupted_after(seconds: float) -> Iterator[None]:
    """Inside, a user's code that blocks the loop for longer than that gets a DeadlineError. Does
    nothing outside of the main thread."""
    if not _installed():
        yield
        return
    _watch.limits.append(seconds)
    if len(_watch.limits) == 1:
        _watch.idle.clear()
        arguments = asyncio.get_running_loop(), threading.get_ident()
        threading.Thread(target=_watch.run, args=arguments, daemon=True).start()
    try:
        yield
    finally:
        _watch.limits.remove(seconds)
        if not _watch.limits:
            _watch.idle.set()


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
    where = _users_place(frame)
    if where is not None:
        raise DeadlineError(f"it blocks the event loop at {where}: await, or use a thread")


def _users_place(frame: FrameType | None) -> str | None:
    """The file and line that run, where they are a user's code or called by it."""
    place = frame
    while frame is not None and place is not None:
        module, name = frame.f_globals.get("__name__", ""), frame.f_code.co_name
        if module.startswith(OURS):
            return None
        if module.startswith("turnwise.") and name in MARKED and frame is not place:
            return f"{place.f_code.co_filename}:{place.f_lineno}"
        frame = frame.f_back
    return None
