"""The choice of the replica that samples a session's next turn: the one that holds its cache, else
the idlest.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar


class Loaded(Protocol):
    """The facts about a server that the choice depends on."""

    up: bool
    in_flight: int
    """Requests that it is sampling."""


Replica = TypeVar("Replica", bound=Loaded)


class Router(Generic[Replica]):
    """Example: `Router(replicas).choose("00000012-0")`."""

    def __init__(self, replicas: Sequence[Replica]) -> None:
        self._replicas = replicas
        self._homes: dict[str, int] = {}

    def choose(self, session: str) -> Replica:
        """The session's replica if that is up; else one that is, with the fewest requests, then
        with the fewest sessions, which is the session's from now on.

        Raises ValueError when none is up.
        """
        home = self._homes.get(session)
        if home is None or not self._replicas[home].up:
            home = self._idlest()
            self._homes[session] = home
        return self._replicas[home]

    def forget(self, session: str) -> None:
        """The session is over. Idempotent."""
        self._homes.pop(session, None)

    def _idlest(self) -> int:
        held = Counter(self._homes.values())
        up = [number for number, replica in enumerate(self._replicas) if replica.up]
        return min(up, key=lambda number: (self._replicas[number].in_flight, held[number]))
