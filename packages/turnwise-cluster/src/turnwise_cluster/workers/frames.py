"""Messages between the process of the run and its workers, and how they travel.

A message is pickled behind its length. Pickles run what they say, so that nothing is read before
the other side has sent the secret of its start.
"""

import asyncio
import pickle
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from turnwise.config import Recipe
from turnwise.engines.base import Completion, Sampling
from turnwise.types import Trajectory
from turnwise_cluster.workers.episode import Assignment

SECRET_BYTES = 32
CLOSING = 10.0
"""Seconds that a worker has to release what it holds, when the run has ended."""
_LENGTH = struct.Struct("!Q")


@dataclass(frozen=True)
class Setup:
    """The materials from which a worker builds environment, reward and scaffold."""

    recipe: Recipe
    tokenizer: Any
    folder: str
    """The working folder of the run, from which relative paths are read."""
    path: Sequence[str]
    """Where the process of the run finds modules."""


@dataclass(frozen=True)
class Ready:
    """A worker has built its parts."""

    node: str
    process: int
    facts: str
    """Versions and data, which have to be the run's own."""


@dataclass(frozen=True)
class Alive:
    """A worker answers."""


@dataclass(frozen=True)
class Play:
    """Play an episode under this number."""

    number: int
    assignment: Assignment


@dataclass(frozen=True)
class Asked:
    """An episode is to be continued by the policy."""

    number: int
    prompt: np.ndarray
    """int32[tokens], the whole context."""
    sampling: Sampling


@dataclass(frozen=True)
class Sampled:
    """The policy's turn, or why there is none."""

    number: int
    completion: Completion | None
    problem: str = ""


@dataclass(frozen=True)
class Cancel:
    """An episode is not needed any more."""

    number: int


@dataclass(frozen=True)
class Played:
    """An episode has ended, or was cancelled."""

    number: int
    trajectory: Trajectory


@dataclass(frozen=True)
class Failed:
    """A bug, or a user's mistake, of an episode, or of the worker's start (number -1)."""

    number: int
    error: BaseException


def send(writer: asyncio.StreamWriter, message: object) -> None:
    """Send a message; to a side that is gone, nothing."""
    if not writer.is_closing():
        data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        writer.write(_LENGTH.pack(len(data)) + data)


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
