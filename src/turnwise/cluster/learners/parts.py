"""The learners of one rank: all ranks make the same ones and call the same methods of them.

Not here: who calls (`team.py`, `worker.py`), and how a run sees it (`learner.py`).
"""

import gc
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from turnwise.algorithms.parts import Requirement
from turnwise.algorithms.registry import Algorithm, make_algorithm
from turnwise.cluster.learners.agreement import check_agreement
from turnwise.cluster.learners.divided import DividedModel, model_of_worker
from turnwise.cluster.learners.process_group import ProcessGroup
from turnwise.config import (
    ImplicitRewardConfig,
    Recipe,
    SelfTeacherConfig,
    SeparateCriticConfig,
    SftConfig,
    ValueHeadConfig,
)
from turnwise.learning.batch import Example
from turnwise.learning.credits import Credits
from turnwise.learning.policy import PolicyLearner, UpdateReport
from turnwise.learning.preferences import Pair, PreferenceLearner
from turnwise.learning.sft import SupervisedLearner
from turnwise.learning.signals.base import Signals
from turnwise.learning.signals.choice import auxiliary_loss_of
from turnwise.learning.signals.critic import Critic
from turnwise.learning.signals.implicit_reward import ImplicitReward
from turnwise.learning.signals.self_teacher import Divided, SelfTeacher, Words
from turnwise.learning.signals.value_head import ValueHead
from turnwise.models.copies import copy_to_divide
from turnwise.storage.tensors import read
from turnwise.threads import release_memory
from turnwise.tokens import Tokens
from turnwise.types import Group, Trajectory

RankedModel = Critic | ImplicitReward | SelfTeacher


class Parts(DividedModel):
    """A policy's learner, and the second model where the algorithm has one.

    Args:
        model: of the recipe; becomes a part of one. Its weights, and those of the reference, are
            those that rank 0 has.
        whole: the model that gets whole weights from `deliver`; None but on rank 0.
        words: of a self-teacher, where the algorithm has one.
    """

    def __init__(
        self,
        ranks: ProcessGroup,
        recipe: Recipe,
        model: nn.Module,
        reference: nn.Module | None,
        whole: nn.Module | None,
        words: Words | None = None,
    ) -> None:
        algorithm, learning = algorithm_of(recipe), recipe.learning
        ranks.slice_rows(recipe.cluster.sequence_ranks)
        ranks.expert_parallel = recipe.cluster.expert_parallel
        check_agreement(ranks, model)
        gc.collect()  # divided models hold themselves
        release_memory()
        self._ranks, self._recipe = ranks, recipe
        copied = self._copied(model, algorithm, words)
        temperature = recipe.rollout.temperature
        self.policy = PolicyLearner(model, reference, learning, algorithm, temperature, ranks)
        self._second = self._second_model(copied, words)
        super().__init__(ranks, self.policy, whole)

    def _copied(
        self, model: nn.Module, algorithm: Algorithm, words: Words | None
    ) -> nn.Module | None:
        """Make a second model of the policy before its weights are divided: a critic, or a copy;
        None where there is no second model, or it has the policy's weights."""
        config = self._recipe.algorithm.critic or SeparateCriticConfig()
        if Requirement.CRITIC in algorithm.needs and isinstance(config, SeparateCriticConfig):
            return Critic(model, config, self._recipe.learning, self._ranks)
        if Requirement.PROCESS_REWARDS in algorithm.needs or words is not None:
            copied: nn.Module = copy_to_divide(model)
            return copied
        return None

    def _second_model(self, copied: nn.Module | None, words: Words | None) -> RankedModel | None:
        """The second model, of what `_copied` has given."""
        policy, signals, learning = self.policy, self._recipe.algorithm, self._recipe.learning
        if isinstance(copied, Critic):
            return copied
        if Requirement.CRITIC in policy.algorithm.needs:
            assert isinstance(signals.critic, ValueHeadConfig)
            return ValueHead(policy.model, signals.critic, learning, self._ranks, policy.compute)
        if copied is None:
            return None
        if Requirement.PROCESS_REWARDS in policy.algorithm.needs:
            config = signals.implicit_reward or ImplicitRewardConfig()
            given = policy.model, policy.reference_logprobs, config, learning, policy.temperature
            return ImplicitReward(*given, self._ranks, copied)
        assert words is not None
        return SelfTeacher(
            policy.model,
            words,
            signals.self_teacher or SelfTeacherConfig(),
            learning,
            policy.algorithm.self_teacher_coefficient,
            policy.temperature,
            Divided(self._ranks, policy.compute, copied),
        )

    @property
    def second(self) -> RankedModel:
        """The second model of an algorithm that has one."""
        assert self._second is not None
        return self._second

    def update(
        self,
        temperature: float,
        groups: Sequence[Group],
        credits: Credits,
        demonstrations: Sequence[Example],
        signals: Signals | None,
        measure_variance: bool,
    ) -> UpdateReport:
        """See `PolicyLearner.update`; with the auxiliary loss of signals, if they are given."""
        self._set_temperature(temperature)
        auxiliary = None if signals is None else auxiliary_loss_of(self._second, signals)
        return self.policy.update(groups, credits, demonstrations, auxiliary, measure_variance)

    def reference_logprobs(
        self, temperature: float, members: Sequence[Trajectory]
    ) -> list[NDArray[np.float64]]:
        """See `PolicyLearner.reference_logprobs`; each rank computes all of them."""
        self.policy.temperature = temperature
        return self.policy.reference_logprobs(members)

    def state(self) -> dict[str, Any]:
        """See `PolicyLearner.state`; of the critic too."""
        second = {} if self._second is None else {"critic": self._second.state()}
        return self.policy.state() | second

    def lower_learning_rate(self, factor: float) -> float:
        """See `PolicyLearner.lower_learning_rate`."""
        return self.policy.lower_learning_rate(factor)

    def measure(self, temperature: float, groups: Sequence[Group]) -> Signals:
        """Measure the signals of the second model."""
        self._set_temperature(temperature)
        return self.second.measure(groups)

    def update_second(
        self, groups: Sequence[Group], signals: Signals, credits: Credits
    ) -> dict[str, float]:
        """Update the second model."""
        return self.second.update(groups, signals, credits)

    def load_second_state(self, state: dict[str, Any]) -> None:
        """Let the second model go on; this rank's parts are read from the checkpoint."""
        self.second.load_state(read(state, self.second.state()))

    def _set_temperature(self, temperature: float) -> None:
        self.policy.temperature = temperature
        if isinstance(self._second, ImplicitReward | SelfTeacher):
            self._second.temperature = temperature


def algorithm_of(recipe: Recipe) -> Algorithm:
    """The algorithm that a recipe names."""
    return make_algorithm(recipe.algorithm.name, recipe.algorithm.overrides)


def parts_of_worker(ranks: ProcessGroup, recipe: Recipe, words: Words | None) -> Parts:
    """Make the parts of a rank but 0."""
    divided = algorithm_of(recipe).has_reference and not recipe.model.lora_rank
    model = model_of_worker(ranks, recipe)
    reference = model_of_worker(ranks, recipe) if divided else None
    return Parts(ranks, recipe, model, reference, None, words)


class OfflineParts(DividedModel):
    """A learner whose data is there before its first step.

    Args:
        make: makes it on this rank, of a model that is divided by then.
    """

    def __init__(
        self,
        ranks: ProcessGroup,
        recipe: Recipe,
        make: Callable[[], SupervisedLearner | PreferenceLearner],
        model: nn.Module,
        whole: nn.Module | None,
    ) -> None:
        ranks.slice_rows(recipe.cluster.sequence_ranks)
        ranks.expert_parallel = recipe.cluster.expert_parallel
        check_agreement(ranks, model)
        self.learner = make()
        super().__init__(ranks, self.learner, whole)

    def step(self) -> dict[str, float]:
        """See `SupervisedLearner.step`, and that of `PreferenceLearner`."""
        return self.learner.step()


def supervised_parts(
    ranks: ProcessGroup,
    recipe: Recipe,
    demonstrations: Sequence[Tokens],
    config: SftConfig,
    model: nn.Module,
    whole: nn.Module | None,
) -> OfflineParts:
    """Make a learner of demonstrations. Arguments as for `Parts` and `SupervisedLearner`."""

    def make() -> SupervisedLearner:
        given = demonstrations, config, recipe.learning, recipe.seed
        return SupervisedLearner(model, *given, ranks)

    return OfflineParts(ranks, recipe, make, model, whole)


def preference_parts(
    ranks: ProcessGroup,
    recipe: Recipe,
    pairs: Sequence[Pair],
    model: nn.Module,
    whole: nn.Module | None,
) -> OfflineParts:
    """Make a learner of pairs. Arguments as for `Parts` and `PreferenceLearner`."""

    def make() -> PreferenceLearner:
        given = recipe.preferences, recipe.learning, recipe.rollout.temperature, recipe.seed
        return PreferenceLearner(model, pairs, *given, ranks)

    return OfflineParts(ranks, recipe, make, model, whole)


def supervised_of_worker(
    ranks: ProcessGroup, recipe: Recipe, demonstrations: Sequence[Tokens], config: SftConfig
) -> OfflineParts:
    """Make the parts of a rank but 0."""
    model = model_of_worker(ranks, recipe)
    return supervised_parts(ranks, recipe, demonstrations, config, model, None)


def preferences_of_worker(
    ranks: ProcessGroup, recipe: Recipe, pairs: Sequence[Pair]
) -> OfflineParts:
    """Make the parts of a rank but 0."""
    return preference_parts(ranks, recipe, pairs, model_of_worker(ranks, recipe), None)


MAKERS: dict[str, Callable[..., DividedModel]] = {
    "build": parts_of_worker,
    "build_supervised": supervised_of_worker,
    "build_preferences": preferences_of_worker,
}
"""Makers of the parts of a rank but 0, by the name of the call."""
