"""How the ranks of a learner reach the first one, which says what all of them do.

Each other rank connects to it, shows the secret of its start, and reads messages from then on,
each pickled behind its length. Pickles run what they say, so that nothing is read before the other
side has shown the secret. Not here: who starts the ranks (`launcher.py`), and what they do.
"""

import hmac
import os
import pickle
import platform
import secrets
import selectors
import socket
import struct
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, BinaryIO

SECRET_BYTES = 32
HELLO_SECONDS = 10.0
"""Seconds that a connection has to show whose it is."""
MOST_STRANGERS = 64
"""Connections that have not yet shown it; of more, the first are closed."""
LONGEST_HELLO = 4096
"""Bytes of the message in which a rank says that it is there."""
_LENGTH = struct.Struct("!Q")


@dataclass(frozen=True)
class RankSetup:
    """All that a rank has to know before the first message."""

    host: str
    """The address of rank 0, by which the others reach it."""
    port: int
    """Where rank 0 says what is to be done."""
    store: int
    """The port of the store by which ranks find each other."""
    secret: bytes
    rank: int
    count: int
    device: str
    """`cuda` or `cpu`."""
    threads: int
    seconds: float
    """Deadline of everything that ranks do together."""
    replicas: int
    """Copies of the divided model."""
    log: str
    """The file of whatever the rank prints."""
    folder: str
    """The working folder of rank 0, from which relative paths are read."""
    path: tuple[str, ...]
    """Where rank 0 finds modules."""


@dataclass(frozen=True)
class Arrival:
    """A rank is there."""

    rank: int
    node: str
    process: int


@dataclass(eq=False)
class _Stranger:
    """A connection that has not yet shown whose it is."""

    connection: socket.socket
    until: float
    said: bytearray = field(default_factory=bytearray)
    wanted: int = SECRET_BYTES
    """Bytes of what it has to say, as far as that is known."""


class Rendezvous:
    """Rank 0's side: the port to which the others come. Example: `rendezvous.arrival(1.0)`."""

    def __init__(self, host: str) -> None:
        self._server = socket.create_server((host, 0))
        self._server.setblocking(False)
        self.port: int = self._server.getsockname()[1]
        self.secret = secrets.token_bytes(SECRET_BYTES)
        self._strangers: list[_Stranger] = []

    def arrival(self, seconds: float) -> tuple[Arrival, socket.socket] | None:
        """Wait for the next rank, and return its connection; None where none comes in time.
        Connections that are silent, slow or without the secret hold no rank up."""
        until = time.monotonic() + seconds
        while True:
            with selectors.DefaultSelector() as ready:
                ready.register(self._server, selectors.EVENT_READ)
                for one in self._strangers:
                    ready.register(one.connection, selectors.EVENT_READ, one)
                events = ready.select(max(0.0, until - time.monotonic()))
            for key, _ in events:
                if key.data is None:
                    self._let_knock()
                elif (arrival := self._heard(key.data)) is not None:
                    return arrival, key.data.connection
            now = time.monotonic()
            late = [one for one in self._strangers if one.until < now]
            for one in late + self._strangers[:-MOST_STRANGERS]:
                self._send_away(one)
            if now >= until:
                return None

    def close(self) -> None:
        """Refuse later connections, and end those of strangers."""
        self._server.close()
        for one in list(self._strangers):
            self._send_away(one)

    def _let_knock(self) -> None:
        with suppress(OSError):  # gone again
            connection, _ = self._server.accept()
            connection.setblocking(False)
            self._strangers.append(_Stranger(connection, time.monotonic() + HELLO_SECONDS))

    def _heard(self, one: _Stranger) -> Arrival | None:
        """Read what there is of a connection; the arrival where it is whole."""
        try:
            data = one.connection.recv(one.wanted - len(one.said))
        except BlockingIOError:
            return None
        except OSError:
            data = b""
        one.said += data
        head = SECRET_BYTES + _LENGTH.size
        if data and len(one.said) < one.wanted:
            return None
        known = hmac.compare_digest(one.said[:SECRET_BYTES], self.secret)
        if known and one.wanted == SECRET_BYTES:
            one.wanted = head
            return None
        if known and one.wanted == head == len(one.said):
            one.wanted += _LENGTH.unpack(one.said[SECRET_BYTES:])[0]
            if head < one.wanted <= head + LONGEST_HELLO:
                return None
        if known and data and len(one.said) > head:
            self._strangers.remove(one)
            arrival: Arrival = pickle.loads(one.said[head:])
            return arrival
        self._send_away(one)
        return None

    def _send_away(self, one: _Stranger) -> None:
        if one in self._strangers:
            self._strangers.remove(one)
        one.connection.close()


def arrive(setup: RankSetup) -> socket.socket:
    """The connection of a rank to the first one, which knows then that it is there."""
    connection = socket.create_connection((setup.host, setup.port), setup.seconds)
    connection.settimeout(None)
    connection.sendall(setup.secret)
    send(connection, Arrival(setup.rank, platform.node(), os.getpid()))
    return connection


def send(connection: socket.socket, message: Any) -> None:
    """Send a message. Raises OSError where the other side is gone or does not listen."""
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    connection.sendall(_LENGTH.pack(len(data)))
    connection.sendall(data)


def receive(stream: BinaryIO) -> bytes | None:
    """The next message, pickled; None where the other side has ended."""
    try:
        head = stream.read(_LENGTH.size)
        if len(head) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack(head)
        data = stream.read(length)
    except OSError:
        return None
    return data if len(data) == length else None
