"""The sessions of an engine that one episode of an agent samples in.

A request has the episode's own session, in which what the last one left in the cache is there
still; what is asked at the same time has a session of its own. An engine in lockstep waits for
every open session, so the episode's own one stays open between requests, as an agent is expected to
ask again, but not while the agent waits for others. A role that is not trained has an engine of its
own, and a session there for each request.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from turnwise.engines.base import Engine


class EngineSessions:
    """The sessions of one episode, whose own one, `name`, is open at first."""

    def __init__(self, engine: Engine, name: str) -> None:
        self._engine, self._name = engine, name
        self._open, self._taken = True, False
        self._under_way = self._made = 0

    @contextmanager
    def one(self) -> Iterator[str]:
        """Inside, a session is this request's alone."""
        self._under_way += 1
        own = not self._taken
        name = self._name if own else self._another()
        if own:
            self._taken = True
            self._open_own()
        else:
            self._engine.open(name)
        try:
            yield name
        finally:
            self._under_way -= 1
            self._taken = self._taken and not own
            if not self._under_way:
                self._open_own()
            elif own:
                self._close_own()
            if not own:
                self._engine.close(name)

    def _another(self) -> str:
        self._made += 1
        return f"{self._name}/{self._made}"

    def _open_own(self) -> None:
        if not self._open:
            self._engine.open(self._name)
            self._open = True

    def _close_own(self) -> None:
        if self._open:
            self._engine.close(self._name)
            self._open = False


class ShortSessions:
    """Sessions of an engine that are open for one request each."""

    def __init__(self, engine: Engine, name: str) -> None:
        self._engine, self._name, self._made = engine, name, 0

    @contextmanager
    def one(self) -> Iterator[str]:
        """Inside, a session is this request's alone."""
        self._made += 1
        name = f"{self._name}/{self._made}"
        self._engine.open(name)
        try:
            yield name
        finally:
            self._engine.close(name)
