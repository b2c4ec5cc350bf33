"""The seam between a run and whatever updates its policy: frozen trajectories in, a report out.

Implementations are `PolicyLearner`, of one process, and `DistributedLearner`, of several. Not here:
when they are called (`training`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import nn

from turnwise.forward.hidden import Images
from turnwise.learning.auxiliary import AuxiliaryLoss
from turnwise.learning.batch import Example
from turnwise.learning.credits import Credits
from turnwise.learning.scoring import Measure, Sequenced
from turnwise.learning.token_numbers import TokenNumbers
from turnwise.tokens import KeptTokens
from turnwise.types import Group, Trajectory


@dataclass(frozen=True)
class UpdateReport:
    """An update's results, in numbers for a log and in words for people."""

    metrics: dict[str, float]
    problems: list[str]
    tokens: TokenNumbers = field(default_factory=dict)
    """Measurements of the trained tokens in the first pass over them."""


class Learner(Protocol):
    """Updates a policy.

    >>> learner: Learner = turnwise.make_learner(components)
    """

    temperature: float
    """The temperature of sampling, above 0, at which tokens are scored."""

    @property
    def model(self) -> nn.Module:
        """The policy: whole weights on this process, those of the last update."""
        ...

    @property
    def kl_coefficient(self) -> float:
        """The present coefficient of the KL term."""
        ...

    def score(
        self,
        sequences: Sequence[Sequenced],
        measure: Measure | None = None,
        images: Images = (),
        kept: Sequence[KeptTokens | None] = (),
    ) -> list[NDArray[np.float32]]:
        """Score given tokens under the policy as it is now: see `scoring.score`. Log-probabilities
        where no other measure is given."""
        ...

    def reference_logprobs(self, members: Sequence[Trajectory]) -> list[NDArray[np.float64]]:
        """Score what was sampled, float64[n] for each trajectory, under the reference model."""
        ...

    def update(
        self,
        groups: Sequence[Group],
        credits: Credits,
        demonstrations: Sequence[Example] = (),
        auxiliary: AuxiliaryLoss | None = None,
        measure_variance: bool = False,
    ) -> UpdateReport:
        """Make a step's optimizer updates; see `PolicyLearner.update`."""
        ...

    def lower_learning_rate(self, factor: float) -> float:
        """Multiply the learning rate by a factor from now on; returns that of the next update."""
        ...

    def take_weights(self, model: nn.Module) -> None:
        """Let the policy have the weights of another model, whole on this process."""
        ...

    def state(self) -> dict[str, Any]:
        """All that a resumed run needs beside the weights, in one form whatever made it."""
        ...

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue exactly where `state` was taken, with the weights that the model had then."""
        ...
