"""The learners of one rank: all ranks make the same ones and call the same methods of them.

Not here: who calls (`team.py`, `worker.py`), and how a run sees it (`learner.py`).
"""

import gc
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from turnwise.algorithms.registry import Algorithm, make_algorithm
from turnwise.cluster.learners.agreement import check_agreement
from turnwise.cluster.learners.divided import DividedModel, device_of, model_of_worker
from turnwise.cluster.learners.process_group import ProcessGroup
from turnwise.config import Recipe, SftConfig
from turnwise.forward.hidden import Images
from turnwise.learning.batch import Example
from turnwise.learning.credits import Credits
from turnwise.learning.learner import UpdateReport
from turnwise.learning.policy import PolicyLearner
from turnwise.learning.preferences import Pair, PreferenceLearner
from turnwise.learning.scoring import Measure, Sequenced
from turnwise.learning.sft import SupervisedLearner
from turnwise.learning.signals.base import Signals
from turnwise.learning.signals.choice import auxiliary_loss_of
from turnwise.learning.signals.implicit_reward import ImplicitReward
from turnwise.learning.signals.second_model import SecondModel, second_model
from turnwise.learning.signals.self_teacher import SelfTeacher, Words
from turnwise.learning.signals.teacher import Teacher, load_teacher
from turnwise.storage.tensors import read
from turnwise.threads import release_memory
from turnwise.tokens import KeptTokens, Tokens
from turnwise.types import Group, Trajectory


class Parts(DividedModel):
    """A policy's learner, and the second model where the algorithm has one.

    Args:
        model: of the recipe; becomes a part of one. Its weights, and those of the reference, are
            those that rank 0 has.
        whole: the model that gets whole weights from `deliver`; None but on rank 0.
        words: of a self-teacher, where the algorithm has one.
        teacher: the model of another teacher, where there is one; becomes a part of one.
    """

    def __init__(
        self,
        ranks: ProcessGroup,
        recipe: Recipe,
        model: nn.Module,
        reference: nn.Module | None,
        whole: nn.Module | None,
        words: Words | None = None,
        teacher: nn.Module | None = None,
    ) -> None:
        algorithm, learning = algorithm_of(recipe), recipe.learning
        ranks.slice_rows(recipe.cluster.sequence_ranks)
        ranks.expert_parallel = recipe.cluster.expert_parallel
        check_agreement(ranks, model, ranks.slicing)
        gc.collect()  # divided models hold themselves
        release_memory()
        second = second_model(recipe, algorithm, model, words, ranks)
        temperature = recipe.rollout.temperature
        self.policy = PolicyLearner(model, reference, learning, algorithm, temperature, ranks)
        self.second = None if second is None else second(self.policy)
        """The second model of an algorithm that has one."""
        self.teacher = None
        if teacher is not None:
            check_agreement(ranks, teacher)
            self.teacher = Teacher(teacher, learning, temperature, ranks)
        super().__init__(ranks, self.policy, whole)

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
        auxiliary = None if signals is None else auxiliary_loss_of(self.second, signals)
        return self.policy.update(groups, credits, demonstrations, auxiliary, measure_variance)

    def score(
        self,
        temperature: float,
        sequences: Sequence[Sequenced],
        measure: Measure | None,
        images: Images,
        kept: Sequence[KeptTokens | None],
    ) -> list[NDArray[np.float32]]:
        """See `PolicyLearner.score`."""
        self.policy.temperature = temperature
        return self.policy.score(sequences, measure, images, kept)

    def reference_logprobs(
        self, temperature: float, members: Sequence[Trajectory]
    ) -> list[NDArray[np.float64]]:
        """See `PolicyLearner.reference_logprobs`."""
        self.policy.temperature = temperature
        return self.policy.reference_logprobs(members)

    def state(self) -> dict[str, Any]:
        """See `PolicyLearner.state`; of the critic too."""
        second = {} if self.second is None else {"critic": self.second.state()}
        return self.policy.state() | second

    def lower_learning_rate(self, factor: float) -> float:
        """See `PolicyLearner.lower_learning_rate`."""
        return self.policy.lower_learning_rate(factor)

    def measure(self, temperature: float, groups: Sequence[Group]) -> Signals:
        """Measure the signals of the second model."""
        self._set_temperature(temperature)
        return self._own_second.measure(groups)

    def measure_teacher(self, temperature: float, groups: Sequence[Group]) -> Signals:
        """Measure what the teacher says."""
        assert self.teacher is not None
        self.teacher.temperature = temperature
        return self.teacher.measure(groups)

    def update_second(
        self, groups: Sequence[Group], signals: Signals, credits: Credits
    ) -> dict[str, float]:
        """Update the second model."""
        return self._own_second.update(groups, signals, credits)

    def load_second_state(self, state: dict[str, Any]) -> None:
        """Let the second model go on; this rank's parts are read from the checkpoint."""
        self._own_second.load_state(read(state, self._own_second.state()))

    @property
    def _own_second(self) -> SecondModel:
        assert self.second is not None
        return self.second

    def _set_temperature(self, temperature: float) -> None:
        self.policy.temperature = temperature
        if isinstance(self.second, ImplicitReward | SelfTeacher):
            self.second.temperature = temperature


def algorithm_of(recipe: Recipe) -> Algorithm:
    """The algorithm that a recipe names."""
    return make_algorithm(recipe.algorithm.name, recipe.algorithm.overrides)


def parts_of_worker(
    ranks: ProcessGroup, recipe: Recipe, words: Words | None, has_reference: bool
) -> Parts:
    """Make the parts of a rank but 0; with a reference where rank 0 has one."""
    model = model_of_worker(ranks, recipe)
    reference = model_of_worker(ranks, recipe) if has_reference else None
    teacher = load_teacher(recipe, device_of(ranks), in_files=True)
    return Parts(ranks, recipe, model, reference, None, words, teacher)


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
        check_agreement(ranks, model, ranks.slicing)
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
