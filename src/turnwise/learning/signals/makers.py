"""The signals that a recipe and its algorithm ask for, and the class from which makers derive."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import nn

from turnwise.algorithms.algorithm import Algorithm
from turnwise.algorithms.parts import Requirement
from turnwise.config import Recipe
from turnwise.forward.hidden import base_model
from turnwise.learning.learner import ModelSignal, PolicyScores, SecondModel
from turnwise.learning.policy import PolicyLearner
from turnwise.learning.ranks import ALONE, Ranks
from turnwise.learning.signals.base import Signal
from turnwise.learning.signals.registry import SIGNALS, signals_needed
from turnwise.learning.signals.reward_terms import KLReward, Penalty
from turnwise.models.copies import copy_to_divide
from turnwise.models.load import load_model
from turnwise.scaffolds.base import Scaffold
from turnwise.types import Action, Task

Oracle = Callable[[Task], Sequence[Action]]
"""The actions of a perfect agent, from a task with its secret (`Environment.oracle`)."""
Words = tuple[NDArray[np.int64], ...]
"""Tokens of a scaffold that a second model puts around what it reads."""
MakeSecond = Callable[[PolicyLearner], SecondModel]
Models = Mapping[str, nn.Module]
"""Models of teachers, by their names in the recipe."""


class SecondParts(NamedTuple):
    """The parts of a run that a second model is begun with, before ranks divide the policy."""

    recipe: Recipe
    algorithm: Algorithm
    policy: nn.Module
    words: Words | None
    ranks: Ranks = ALONE

    def copied(self) -> nn.Module | None:
        """A copy for ranks to divide; None on one process, where a second model makes its own."""
        return None if self.ranks.count == 1 else copy_to_divide(self.policy)


class Sources(NamedTuple):
    """The parts of a run that its signals are made of."""

    recipe: Recipe
    tokenizer: Any
    scaffold: Scaffold
    oracle: Oracle
    tasks: Sequence[Task]
    """All of training, with their secrets."""
    context: int | None
    """The longest text that the policy reads; None is no limit."""


class SignalMaker:
    """Makes one signal: of the policy, of a second model that learns, or of a teacher. A wing
    derives from it and names its class as a part of the kind "signal"."""

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

    def second_model(self, given: SecondParts) -> MakeSecond | None:
        """Begin to make the second model, if any: see `choice.second_model`."""
        return None

    def teacher(self, recipe: Recipe, models: Models, ranks: Ranks) -> ModelSignal:
        """The signal of the teachers' models. Raises NotImplementedError where that is none."""
        raise NotImplementedError


def signals_of(
    recipe: Recipe,
    algorithm: Algorithm,
    learner: PolicyScores,
    scaffold: Scaffold,
    oracle: Oracle,
    models: Sequence[Signal | None],
) -> list[Signal]:
    """A step's signals: the penalty, those of the run's models (a second one, a teacher), and those
    that the algorithm asks of the policy, as the learner has it now."""
    context = context_of(learner.model)
    signals: list[Signal] = [Penalty(algorithm, recipe.rollout.max_tokens)]
    signals += [model for model in models if model is not None]
    for maker in makers_of(algorithm):
        own = maker.of_policy(learner, scaffold, oracle, context)
        signals += [] if own is None else [own]
    if algorithm.kl_reward_coefficient:
        signals.append(KLReward(learner.reference_logprobs, learner.kl_coefficient))
    return signals


def check_signals(algorithm: Algorithm, run: Sources) -> None:
    """Raise ConfigError where a run lacks what an algorithm's signals are made of."""
    for maker in makers_of(algorithm):
        maker.check(run)


def words_of(algorithm: Algorithm, scaffold: Scaffold) -> Words | None:
    """The words that an algorithm's second model needs; None where it needs none."""
    found = [maker.words(scaffold) for maker in makers_of(algorithm)]
    return next((words for words in found if words is not None), None)


def second_model(given: SecondParts) -> MakeSecond | None:
    """Begin to make an algorithm's second model, which judges trajectories and learns with the
    policy; None without one.

    To be called before ranks divide the policy, since most are copies of it; what is returned makes
    the model, once the policy's learner is there.
    """
    begun = (maker.second_model(given) for maker in makers_of(given.algorithm))
    return next((make for make in begun if make is not None), None)


def load_teachers(recipe: Recipe, device: str, in_files: bool = False) -> Models:
    """The models of the teachers' settings, in the type of the policy's."""
    teacher, found = recipe.algorithm.teacher, {}
    for name in sorted(set(teacher.by_environment.values()) if teacher else ()):
        own = {"name": name, "lora_rank": 0, "device": device}
        config = recipe.model.model_copy(update=own)
        found[name] = load_model(config, longest=recipe.rollout.max_tokens, in_files=in_files)[0]
    return found


def teacher_of(recipe: Recipe, models: Models, ranks: Ranks = ALONE) -> ModelSignal | None:
    """The signal of the teachers' models; None without any."""
    maker: SignalMaker | None = SIGNALS.get(Requirement.TEACHER)() if models else None
    return None if maker is None else maker.teacher(recipe, models, ranks)


def makers_of(algorithm: Algorithm) -> list[SignalMaker]:
    """The makers of the signals that an algorithm needs, in the order of measuring."""
    return [SIGNALS.get(need)() for need in signals_needed(algorithm)]


def context_of(model: nn.Module) -> int | None:
    """The longest text that a model reads; None is no limit."""
    config = base_model(model).config.get_text_config()
    return getattr(config, "max_position_embeddings", None)
