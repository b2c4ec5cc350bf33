"""The messages between the process of the run and its samplers.

Not here: how they travel (`cluster/frames.py`), and who says what when (`lane.py`, `sampler.py`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from turnwise.config import Recipe
from turnwise.engines.base import Completion, Sampling
from turnwise.tokens import Image


@dataclass(frozen=True)
class Setup:
    """The materials from which a sampler builds its model and engine."""

    recipe: Recipe
    folder: str
    """The working folder of the run, from which relative paths are read."""
    path: Sequence[str]
    """Where the process of the run finds modules."""


@dataclass(frozen=True)
class Open:
    """A session begins."""

    session: str


@dataclass(frozen=True)
class Close:
    """A session has ended."""

    session: str


@dataclass(frozen=True)
class Ask:
    """A turn is to be sampled, under this number."""

    session: str
    number: int
    prompt: np.ndarray
    """int32[tokens], the whole history."""
    sampling: Sampling
    images: Sequence[Image]


@dataclass(frozen=True)
class Cancel:
    """The turn of a session is not needed any more."""

    session: str


Request = Open | Close | Ask | Cancel
Frame = Sequence[Request]
"""Requests of one moment: between two of them the engine does nothing."""


@dataclass(frozen=True)
class Piece:
    """A part of a new weight, whose bytes follow the message."""

    name: str
    dtype: str
    shape: Sequence[int]
    start: int
    """The place of its first byte in the weight's."""
    size: int
    """The number of its bytes."""


@dataclass(frozen=True)
class Load:
    """All pieces are there: sample with the new weights from now on."""

    version: int


@dataclass(frozen=True)
class Loaded:
    """The engine has taken new weights."""

    version: int


@dataclass(frozen=True)
class Sampled:
    """The turn of this number."""

    number: int
    completion: Completion
