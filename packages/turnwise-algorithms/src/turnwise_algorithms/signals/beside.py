"""The common half of second models that add to the policy's loss and have nothing to learn."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import nn

from turnwise.algorithms.algorithm import Algorithm
from turnwise.config import LearningConfig
from turnwise.learning.auxiliary import AuxiliaryLoss
from turnwise.learning.batch import Example, MicroBatch, collate, pack
from turnwise.learning.credits import Credits
from turnwise.learning.signals.base import Signals
from turnwise.types import Group


class Beside:
    """Derive from it with `add_gradient` of an `AuxiliaryLoss`; on one process."""

    signals = Signals()

    def __init__(
        self, policy: nn.Module, algorithm: Algorithm, learning: LearningConfig, temperature: float
    ) -> None:
        self.policy, self.algorithm, self.learning = policy, algorithm, learning
        self.temperature = temperature or 1.0
        self.numbers = algorithm.numbers_of("extension")

    def measure(self, groups: Sequence[Group]) -> Signals:
        return Signals()

    def auxiliary_loss(self, signals: Signals) -> AuxiliaryLoss | None:
        return self

    def has_update(self, groups: Sequence[Group], credits: Credits) -> bool:
        return False

    def add_gradient(self, groups: Sequence[Group], credits: Credits) -> str:
        raise NotImplementedError

    def update(
        self, groups: Sequence[Group], signals: Signals, credits: Credits
    ) -> dict[str, float]:
        return {}

    def state(self) -> dict[str, Any]:
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Nothing, unless derived classes have a state."""

    def batches(self, examples: Sequence[Example]) -> Iterator[MicroBatch]:
        """The examples that a gradient can come from."""
        felt = [one for one in examples if one.advantage[one.trained].any()]
        for members in pack(felt, self.learning.tokens_per_micro_batch):
            yield collate(members, next(self.policy.parameters()).device)
