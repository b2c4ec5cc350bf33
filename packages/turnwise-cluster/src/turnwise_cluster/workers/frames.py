"""The messages between the process of the run and its workers.

Not here: how they travel (`turnwise_cluster/frames.py`), and who says what when (`link.py`,
`worker.py`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from turnwise.config import Recipe
from turnwise.engines.base import Completion, Sampling
from turnwise.rollout.remote_episode import Assignment
from turnwise.types import Trajectory


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
