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
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, BinaryIO

SECRET_BYTES = 32
HELLO_SECONDS = 10.0
"""Seconds that a connection has to show whose it is."""
_LENGTH = struct.Struct("!Q")


@dataclass(frozen=True)
class Meeting:
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


class Door:
    """Rank 0's side: the port to which the others come. Example: `door.arrival(1.0)`."""

    def __init__(self, host: str) -> None:
        self._server = socket.create_server((host, 0))
        self.port: int = self._server.getsockname()[1]
        self.secret = secrets.token_bytes(SECRET_BYTES)

    def arrival(self, seconds: float) -> tuple[Arrival, socket.socket] | None:
        """Wait for the next rank, and return its connection; None where none comes in time, or
        only a stranger without the secret."""
        self._server.settimeout(seconds)
        try:
            connection, _ = self._server.accept()
        except TimeoutError:
            return None
        connection.settimeout(HELLO_SECONDS)
        with connection.makefile("rb") as stream, suppress(OSError):
            known = hmac.compare_digest(stream.read(SECRET_BYTES), self.secret)
            if known and (said := receive(stream)) is not None:
                return pickle.loads(said), connection
        connection.close()
        return None

    def close(self) -> None:
        """Refuse later connections."""
        self._server.close()


def arrive(meeting: Meeting) -> socket.socket:
    """The connection of a rank to the first one, which knows then that it is there."""
    connection = socket.create_connection((meeting.host, meeting.port), meeting.seconds)
    connection.settimeout(None)
    connection.sendall(meeting.secret)
    send(connection, Arrival(meeting.rank, platform.node(), os.getpid()))
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
