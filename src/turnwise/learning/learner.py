"""The seam between a run and whatever updates its policy: frozen trajectories in, a report out.

A run never asks whether its learner is of one process (`parts/one_process.py`) or of several
(`packages/turnwise-cluster`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import nn

from turnwise.config import Recipe
from turnwise.forward.hidden import Images
from turnwise.learning.auxiliary import AuxiliaryLoss
from turnwise.learning.batch import Example
from turnwise.learning.credits import Credits
from turnwise.learning.optimizer import Optimizer
from turnwise.learning.ranks import Ranks
from turnwise.learning.scoring import Measure, Sequenced
from turnwise.learning.signals.base import Signal, Signals, TokenNumbers
from turnwise.tokens import KeptTokens
from turnwise.types import Group, Trajectory


@dataclass(frozen=True)
class UpdateReport:
    """An update's results, in numbers for a log and in words for people."""

    metrics: dict[str, float]
    problems: list[str]
    tokens: TokenNumbers = field(default_factory=dict)
    """Measurements of the trained tokens in the first pass over them."""


class Stateful(Protocol):
    """Something that a resumed run goes on with."""

    def state(self) -> dict[str, Any]:
        """All that a resumed run needs beside a model's weights, in one form whatever made it."""

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue exactly where `state` was taken; its tensors may still be in files."""


class Resumable(Stateful, Protocol):
    """A learner that a run saves, goes on with and ends."""

    def save(
        self,
        root: Path,
        step: int,
        tokenizer: Any,
        state: Mapping[str, Any],
        learner: Mapping[str, Any],
        then: Callable[[], None],
    ) -> None:
        """Write a checkpoint, as `checkpoint.save` does, or begin to: all has been copied when this
        returns, and `then` is called when it is whole. Raises InfrastructureError where the disk
        fails, or did for the last."""

    def wait_until_saved(self) -> None:
        """Wait until the last checkpoint is whole; InfrastructureError where it cannot be."""

    def close(self) -> None:
        """End the other processes of the learner, if there are any. Idempotent."""


class LearningSignal(Signal, Protocol):
    """A signal whose model learns with the policy."""

    def update(
        self, groups: Sequence[Group], signals: Signals, credits: Credits
    ) -> dict[str, float]:
        """Learn from a step's groups, of which these are the signals; returns metrics."""


class ModelSignal(Signal, Protocol):
    """A signal of a model beside the policy, which scores at a temperature."""

    temperature: float
    """The temperature of sampling, above 0."""


class SecondModel(ModelSignal, LearningSignal, Stateful, Protocol):
    """The model that an algorithm has beside its policy, on this process or as a part of one."""

    def auxiliary_loss(self, signals: Signals) -> AuxiliaryLoss | None:
        """Its loss that goes into the policy's updates; None without one."""


class PolicyScores(Protocol):
    """A policy that scores tokens as it is now."""

    @property
    def model(self) -> nn.Module:
        """The policy: whole weights on this process, those of the last update."""

    @property
    def kl_coefficient(self) -> float:
        """The present coefficient of the KL term."""

    def score(
        self,
        sequences: Sequence[Sequenced],
        measure: Measure | None = None,
        images: Images = (),
        kept: Sequence[KeptTokens | None] = (),
    ) -> list[NDArray[np.float32]]:
        """Score given tokens under the policy as it is now: see `scoring.score`."""

    def reference_logprobs(self, members: Sequence[Trajectory]) -> list[NDArray[np.float64]]:
        """Score what was sampled, float64[n] for each trajectory, under the reference model."""


class Learner(PolicyScores, Resumable, Protocol):
    """Updates a policy, and has the models that its algorithm wants beside it.

    >>> learner: Learner = turnwise.make_learner(components)
    """

    @property
    def second(self) -> LearningSignal | None:
        """The second model, of an algorithm that has one."""

    @property
    def teacher(self) -> Signal | None:
        """The teacher, where there is one."""

    def set_temperature(self, temperature: float) -> None:
        """Score tokens, in all models, at the temperature that they were sampled at. 0 means 1."""

    def auxiliary_loss(self, signals: Signals) -> AuxiliaryLoss | None:
        """The loss of the second model that goes into the policy's updates; None without one."""

    def update(
        self,
        groups: Sequence[Group],
        credits: Credits,
        demonstrations: Sequence[Example] = (),
        auxiliary: AuxiliaryLoss | None = None,
        measure_variance: bool = False,
    ) -> UpdateReport:
        """Make a step's optimizer updates; see `PolicyLearner.update`."""

    def lower_learning_rate(self, factor: float) -> float:
        """Multiply the learning rate by a factor from now on; returns that of the next update."""

    def take_weights(self, model: nn.Module) -> None:
        """Let the policy have the weights of another model, whole on this process."""

    def broadcast(self) -> None:
        """Let all processes of the learner have what was written into the model's weights."""


class Steps(Protocol):
    """Updates of a learner whose data is there before its first step."""

    name: str
    """The beginning of its metrics' names; they have a loss and `skipped_updates`."""

    @property
    def steps_done(self) -> int: ...

    @property
    def finished(self) -> bool: ...

    def step(self) -> dict[str, float]:
        """One update; returns its metrics."""


class OfflineSteps(Steps, Stateful, Protocol):
    """Makes all of the updates, or those of one of its ranks, which all make the same calls."""

    optimizer: Optimizer

    @property
    def model(self) -> nn.Module:
        """The model that it moves."""


MakeOffline = Callable[[Recipe, nn.Module, Ranks], OfflineSteps]
"""Makes them on a rank, which divides the model. It is pickled for other processes: a function of a
module, or a `functools.partial` of one with the data."""


class OfflineLearner(Steps, Resumable, Protocol):
    """A learner whose data is there before its first step."""

    def deliver(self) -> None:
        """Let the run's model have the present weights, whole."""
