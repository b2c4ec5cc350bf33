"""The record of an episode's time: when it was played, in which process, and what it did."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class Doing(StrEnum):
    """The work of an episode in a span; outside of spans its process works on it."""

    SAMPLING = "sampling"
    """A request is with the engine, or waits there."""
    ENVIRONMENT = "environment"
    """The environment resets, or its state is restored."""
    TOOLS = "tools"
    """The environment takes a step, with the calls of a turn."""
    GRADING = "grading"


class Span(NamedTuple):
    """A part of an episode, in seconds after its beginning."""

    doing: Doing
    start: float
    end: float


@dataclass(frozen=True)
class EpisodeTimes:
    """Example: EpisodeTimes(time.monotonic() - 2.0, 2.0, (Span(Doing.TOOLS, 0.5, 1.0),))."""

    begun: float
    """`time.monotonic()` of the run's process when it got its place."""
    seconds: float
    """Its length, from there to its end."""
    spans: tuple[Span, ...] = ()
    process: str = ""
    """The process that played it, as "worker 2 (process 4711 on node-b)"; "" is the run's."""
