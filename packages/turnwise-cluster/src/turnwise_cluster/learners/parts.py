"""The learners of one rank: all ranks make the same ones and call the same methods of them.

Not here: who calls (`team.py`, `worker.py`), and how a run sees it (`learner.py`).
"""

import gc
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from torch import nn

from turnwise.algorithms.registry import Algorithm, make_algorithm
from turnwise.config import Recipe
from turnwise.forward.hidden import Images
from turnwise.learning.batch import Example
from turnwise.learning.credits import Credits
from turnwise.learning.learner import MakeOffline, SecondModel, UpdateReport
from turnwise.learning.scoring import Measure, Sequenced
from turnwise.learning.signals.base import Signals
from turnwise.learning.signals.choice import load_teacher, second_model
from turnwise.learning.signals.makers import Words
from turnwise.parts.one_process import RunLearner
from turnwise.threads import release_memory
from turnwise.tokens import KeptTokens
from turnwise.types import Group, Trajectory
from turnwise_cluster.learners.agreement import check_agreement
from turnwise_cluster.learners.divided import DividedModel, device_of, model_of_worker
from turnwise_cluster.learners.process_group import ProcessGroup


class Parts(DividedModel):
    """A policy's learner, and the second model where the algorithm has one.

    Args:
        model: of the recipe; becomes a part of one. Its weights, and those of the reference, are
            those that rank 0 has.
        whole: the model that gets whole weights from `deliver`; None but on rank 0.
        words: of the second model, where it needs some.
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
        if teacher is not None:
            check_agreement(ranks, teacher)
        given = reference, learning, algorithm, recipe.rollout.temperature, ranks
        self.policy = RunLearner(model, *given, second, teacher)
        super().__init__(ranks, self.policy, whole)

    def set_temperature(self, temperature: float) -> None:
        """See `RunLearner.set_temperature`."""
        self.policy.set_temperature(temperature)

    def update(
        self,
        groups: Sequence[Group],
        credits: Credits,
        demonstrations: Sequence[Example],
        signals: Signals | None,
        measure_variance: bool,
    ) -> UpdateReport:
        """See `PolicyLearner.update`; with the auxiliary loss of signals, if they are given."""
        auxiliary = None if signals is None else self.policy.auxiliary_loss(signals)
        return self.policy.update(groups, credits, demonstrations, auxiliary, measure_variance)

    def score(
        self,
        sequences: Sequence[Sequenced],
        measure: Measure | None,
        images: Images,
        kept: Sequence[KeptTokens | None],
    ) -> list[NDArray[np.float32]]:
        """See `PolicyLearner.score`."""
        return self.policy.score(sequences, measure, images, kept)

    def reference_logprobs(self, members: Sequence[Trajectory]) -> list[NDArray[np.float64]]:
        """See `PolicyLearner.reference_logprobs`."""
        return self.policy.reference_logprobs(members)

    def lower_learning_rate(self, factor: float) -> float:
        """See `PolicyLearner.lower_learning_rate`."""
        return self.policy.lower_learning_rate(factor)

    def measure(self, groups: Sequence[Group]) -> Signals:
        """Measure the signals of the second model."""
        return self.second.measure(groups)

    def measure_teacher(self, groups: Sequence[Group]) -> Signals:
        """Measure what the teacher says."""
        assert self.policy.teacher is not None
        return self.policy.teacher.measure(groups)

    def update_second(
        self, groups: Sequence[Group], signals: Signals, credits: Credits
    ) -> dict[str, float]:
        """Update the second model."""
        return self.second.update(groups, signals, credits)

    @property
    def second(self) -> SecondModel:
        """The second model of an algorithm that has one."""
        assert self.policy.second is not None
        return self.policy.second


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
        make: MakeOffline,
        model: nn.Module,
        whole: nn.Module | None,
    ) -> None:
        ranks.slice_rows(recipe.cluster.sequence_ranks)
        ranks.expert_parallel = recipe.cluster.expert_parallel
        check_agreement(ranks, model, ranks.slicing)
        self.learner = make(recipe, model, ranks)
        super().__init__(ranks, self.learner, whole)

    def step(self) -> dict[str, float]:
        """See `OfflineSteps.step`."""
        return self.learner.step()


def offline_of_worker(ranks: ProcessGroup, recipe: Recipe, make: MakeOffline) -> OfflineParts:
    """Make the parts of a rank but 0."""
    return OfflineParts(ranks, recipe, make, model_of_worker(ranks, recipe), None)


MAKERS: dict[str, Callable[..., DividedModel]] = {
    "build": parts_of_worker,
    "build_offline": offline_of_worker,
}
"""Makers of the parts of a rank but 0, by the name of the call."""
