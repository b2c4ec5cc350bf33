"""A bound for work that cannot be asked to stop: a model is loaded, an update is made."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class TimeUp(BaseException):
    """The seconds of `within` are over. No Exception, as KeyboardInterrupt is none: libraries that
    load a model catch those."""


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Inside, TimeUp is raised after so many seconds, as soon as Python is at work again; never
    outside of the main thread, where no signal comes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.signal(signal.SIGALRM, _up)
    other, _ = signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-3))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, other)
        signal.signal(signal.SIGALRM, handler)


def _up(number: int, frame: FrameType | None) -> None:
    raise TimeUp
