"""Places on the nodes of a cluster, where an engine may start servers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol


class PlaceLostError(Exception):
    """The process of an object is gone; the text says why."""


class ActorHandle(Protocol):
    """An object in a process on some node, which runs one method at a time, in its main thread."""

    async def call(self, method: str, seconds: float, *arguments: Any) -> Any:
        """A method's result. Raises what it raises, PlaceLostError, and TimeoutError after so
        long."""

    def end(self) -> None:
        """End its process, wherever it is. Idempotent."""


@dataclass(frozen=True)
class ServerPlaces:
    """Places for the servers of an engine, one in each."""

    count: int
    hold: Callable[..., ActorHandle]
    """Makes an object in a process of a place and returns at once: `hold(0, Servant, folder)`."""
    start_seconds: float
    """Deadline of a process's start."""
    host: str = ""
    """The address at which a server is to listen; empty where it is its node's own."""
