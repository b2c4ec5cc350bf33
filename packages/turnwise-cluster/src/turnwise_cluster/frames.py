"""Messages between the process of the run and those beside it, and how they travel.

A message is pickled behind its length. Pickles run what they say, so that nothing is read before
the other side has sent the secret of its start. Not here: what is said to one kind of process
(`workers/frames.py`), and when (`pool.py`).
"""

import asyncio
import pickle
import struct
from dataclasses import dataclass
from typing import Any

SECRET_BYTES = 32
_LENGTH = struct.Struct("!Q")


@dataclass(frozen=True)
class Ready:
    """A process has built its parts."""

    node: str
    process: int
    facts: str
    """Versions and data, which have to be the run's own."""


@dataclass(frozen=True)
class Alive:
    """A process answers."""


@dataclass(frozen=True)
class Failed:
    """A bug, or a user's mistake, of a piece of work, or of the process's start (number -1)."""

    number: int
    error: BaseException


def encoded(message: object) -> bytes:
    """The message as it travels."""
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(data)) + data


def send(writer: asyncio.StreamWriter, message: object) -> None:
    """Send a message; to a side that is gone, nothing."""
    if not writer.is_closing():
        writer.write(encoded(message))


async def receive(reader: asyncio.StreamReader) -> Any:
    """The next message. Raises IncompleteReadError or OSError when the other side is gone."""
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    return pickle.loads(await reader.readexactly(length))


def portable(error: BaseException) -> BaseException:
    """An error as it can be sent: itself, or its text where it cannot be pickled."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - a user's error may do anything when it is pickled
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
