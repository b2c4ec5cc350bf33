"""Makers of signals: what the maker of each gives, for an algorithm that needs it."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import nn

from turnwise.algorithms.registry import Algorithm
from turnwise.config import LearningConfig, Recipe
from turnwise.learning.learner import ModelSignal, PolicyScores, SecondModel
from turnwise.learning.policy import PolicyLearner
from turnwise.learning.ranks import Ranks
from turnwise.learning.signals.base import Signal
from turnwise.models.copies import copy_to_divide
from turnwise.scaffolds.base import Scaffold
from turnwise.types import Action, Task

Oracle = Callable[[Task], Sequence[Action]]
"""The actions of a perfect agent, from a task with its secret (`Environment.oracle`)."""
Words = tuple[NDArray[np.int64], ...]
"""Tokens of a scaffold that a second model puts around what it reads."""
MakeSecond = Callable[[PolicyLearner], SecondModel]


class Sources(NamedTuple):
    """The parts of a run that its signals are made of."""

    recipe: Recipe
    tokenizer: Any
    scaffold: Scaffold
    oracle: Oracle
    task: Task
    """One of training, with its secret."""
    context: int | None
    """The longest text that the policy reads; None is no limit."""


class SignalMaker:
    """Makes one signal: of the policy, of a second model that learns, or of a teacher.

    A wing derives from it and names its class as a part of the kind "signal".
    """

    def check(self, run: Sources) -> None:
        """Raise ConfigError where a run lacks what the signal is made of."""

    def of_policy(
        self, policy: PolicyScores, scaffold: Scaffold, oracle: Oracle, context: int | None
    ) -> Signal | None:
        """The signal that is measured of the policy, as it is now, if any."""
        return None

    def words(self, scaffold: Scaffold) -> Words | None:
        """The words that the second model needs, if any."""
        return None

    def second_model(
        self,
        recipe: Recipe,
        algorithm: Algorithm,
        policy: nn.Module,
        words: Words | None,
        ranks: Ranks,
    ) -> MakeSecond | None:
        """Begin to make the second model, if any: see `choice.second_model`."""
        return None

    def teacher(
        self, model: nn.Module, config: LearningConfig, temperature: float, ranks: Ranks
    ) -> ModelSignal:
        """The signal of a teacher's model. Raises NotImplementedError where that is none."""
        raise NotImplementedError


def copied(policy: nn.Module, ranks: Ranks) -> nn.Module | None:
    """A copy for ranks to divide; None on one process, where a second model makes its own."""
    return None if ranks.count == 1 else copy_to_divide(policy)
