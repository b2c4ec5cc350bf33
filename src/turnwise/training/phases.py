"""The phases of the stage of RL: what the process of the run did for a step, and when."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple


class Phase(NamedTuple):
    """A phase by its name, from and to a moment of `time.monotonic()`."""

    name: str
    start: float
    end: float


class Phases:
    """Example: `with phases.of("update"): ...`; `phases.take()` at the end of a step."""

    def __init__(self) -> None:
        self._done: list[Phase] = []

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Note a phase; phases do not overlap."""
        begun = time.monotonic()
        try:
            yield
        finally:
            self._done.append(Phase(name, begun, time.monotonic()))

    def take(self) -> list[Phase]:
        """The phases since this was asked last."""
        done, self._done = self._done, []
        return done
