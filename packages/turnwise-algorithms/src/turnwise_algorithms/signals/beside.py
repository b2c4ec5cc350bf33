"""The common half of second models that add to the policy's loss and have nothing to learn."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import nn

from turnwise.algorithms.algorithm import Algorithm
from turnwise.algorithms.parts import SELF_TEACHERS, Requirement
from turnwise.config import LearningConfig, Recipe
from turnwise.errors import ConfigError
from turnwise.learning.auxiliary import AuxiliaryLoss
from turnwise.learning.batch import Example, MicroBatch, collate, pack
from turnwise.learning.credits import Credits
from turnwise.learning.ranks import Ranks
from turnwise.learning.signals.base import Signals
from turnwise.types import Group

SECOND = {Requirement.CRITIC, Requirement.PROCESS_REWARDS, *SELF_TEACHERS}


class Beside:
    """Derive from it with `add_gradient` of an `AuxiliaryLoss`; on one process."""

    signals = Signals()

    def __init__(
        self, policy: nn.Module, algorithm: Algorithm, learning: LearningConfig, temperature: float
    ) -> None:
        self.policy, self.algorithm, self.learning = policy, algorithm, learning
        self.temperature = temperature or 1.0
        self.numbers = algorithm.numbers_of("objective")

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


def check_second(algorithm: Algorithm, ranks: Ranks) -> None:
    """Raise ConfigError where there is another second model, or several processes that learn."""
    if ranks.count > 1 or algorithm.needs & SECOND:
        raise ConfigError(
            f"objective {algorithm.objective} has the place of the second model, on one process: "
            "choose another objective, or an estimator without such a model, and one learner"
        )


def check_whole(recipe: Recipe, objective: str) -> None:
    """Raise ConfigError where tokens are sampled from a part of the vocabulary."""
    rollout = recipe.rollout
    if rollout.top_k or rollout.top_p < 1 or rollout.min_p:
        raise ConfigError(
            f"objective {objective} takes tokens of the whole vocabulary: leave rollout.top_k, "
            "top_p and min_p out"
        )
