"""Signals that end a run in good order: it saves what it has and says how to go on.

Ctrl-C is asyncio's: it cancels the main task. SIGTERM, which `kill` and service managers send, and
SIGUSR1, which clusters send before they take a machine away (`sbatch --signal=USR1@120`), do the
same here; each has an exit code of its own. Not here: what is saved (`training`).
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

EXIT_CODES = {signal.SIGTERM: 143, signal.SIGUSR1: 75}
"""128 + 15; and EX_TEMPFAIL of sysexits.h: run me again."""


class Stopped(KeyboardInterrupt):
    """A signal has ended the work."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.exit_code = EXIT_CODES[signal.Signals(number)]


@contextmanager
def stoppable() -> Iterator[None]:
    """Inside, SIGTERM and SIGUSR1 do what Ctrl-C does, and leave as Stopped in place of
    KeyboardInterrupt. For the main thread. A second signal does not disturb the saving."""
    received: list[int] = []

    def receive(number: int, frame: FrameType | None) -> None:
        if not received:
            received.append(number)
            signal.raise_signal(signal.SIGINT)

    before = {number: signal.signal(number, receive) for number in EXIT_CODES}
    try:
        yield
    except KeyboardInterrupt:
        if received:
            raise Stopped(received[0]) from None
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
