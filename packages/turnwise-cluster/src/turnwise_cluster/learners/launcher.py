"""How the ranks of a learner are started, and reach the first one, which says what all of them do.

They are processes of this machine, or on the nodes of a cluster. Each connects to it, shows the
secret of its start, and reads messages from then on, each pickled behind its length. Pickles run
what they say, so that nothing is read before the other side has shown the secret.
"""

import hmac
import os
import pickle
import platform
import queue
import secrets
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, BinaryIO

from turnwise_cluster.placement import ExitStatus, PlacementGroup, Process

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


class Rendezvous:
    """Rank 0's side: the port to which the others come. Example: `rendezvous.arrival(1.0)`.

    Connections that are silent, slow or without the secret hold no rank up.
    """

    def __init__(self, host: str) -> None:
        self._server = listening_at(host)
        self.port: int = self._server.getsockname()[1]
        self.secret = secrets.token_bytes(SECRET_BYTES)
        self._arrived: queue.Queue[tuple[Arrival, socket.socket]] = queue.Queue()
        self._strangers: deque[socket.socket] = deque()
        threading.Thread(target=self._let_in, daemon=True).start()

    def arrival(self, seconds: float) -> tuple[Arrival, socket.socket] | None:
        """Wait for the next rank, and return its connection; None where none comes in time."""
        try:
            return self._arrived.get(timeout=seconds)
        except queue.Empty:
            return None

    def close(self) -> None:
        """Refuse later connections, and end those of strangers."""
        _end(self._server)
        for one in list(self._strangers):
            _end(one)

    def _let_in(self) -> None:
        with suppress(OSError):  # the server is closed
            while True:
                connection, _ = self._server.accept()
                self._strangers.append(connection)
                if len(self._strangers) > MOST_STRANGERS:
                    _end(self._strangers.popleft())
                threading.Thread(target=self._hear, args=(connection,), daemon=True).start()

    def _hear(self, connection: socket.socket) -> None:
        """Read whose a connection is."""
        until = time.monotonic() + HELLO_SECONDS
        with suppress(OSError, ValueError):
            if hmac.compare_digest(_read(connection, SECRET_BYTES, until), self.secret):
                (length,) = _LENGTH.unpack(_read(connection, _LENGTH.size, until))
                if length <= LONGEST_HELLO:
                    said = _read(connection, length, until)
                    self._strangers.remove(connection)
                    self._arrived.put((pickle.loads(said), connection))
                    return
        with suppress(ValueError):  # sent away
            self._strangers.remove(connection)
        _end(connection)


def listening_at(host: str) -> socket.socket:
    """A socket that listens at an address of this machine, on a free port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, 0), family=family)


def _read(connection: socket.socket, count: int, until: float) -> bytes:
    """So many bytes. Raises OSError where the other side ends, or is not done at that time."""
    said = b""
    while len(said) < count:
        connection.settimeout(max(0.0, until - time.monotonic()))
        if not (more := connection.recv(count - len(said))):
            raise ConnectionError
        said += more
    return said


def _end(connection: socket.socket) -> None:
    """Close it, and wake the thread that waits for it."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


def arrive(setup: RankSetup) -> socket.socket:
    """The connection of a rank to the first one, which knows then that it is there."""
    connection = socket.create_connection((setup.host, setup.port), setup.seconds)
    connection.settimeout(None)  # the first may say nothing for long
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


class Subprocesses:
    """Ranks of this machine; on GPUs each has the one of its number."""

    host = "127.0.0.1"

    def start(self, setup: RankSetup) -> "Subprocess":
        with open(setup.log, "wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "turnwise_cluster.learners.worker"],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
            )
        assert process.stdin is not None
        with suppress(BrokenPipeError), process.stdin:  # of one that has ended
            pickle.dump(setup, process.stdin)
        return Subprocess(process)


class Subprocess:
    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process

    def ended(self, seconds: float = 0.0) -> ExitStatus | None:
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        return ExitStatus(f"code {code}", lost=code < 0)  # by a signal

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


class OnNodes:
    """Ranks on the nodes of a cluster, each with the GPU that is given to it there."""

    def __init__(self, host: str, places: PlacementGroup) -> None:
        self.host, self._places = host, places

    def start(self, setup: RankSetup) -> Process:
        from turnwise_cluster.learners.worker import work_on_node

        return self._places.start(setup.rank, work_on_node, setup)


RankLauncher = Subprocesses | OnNodes
RankProcess = Subprocess | Process
