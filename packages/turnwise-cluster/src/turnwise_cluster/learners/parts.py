"""The learner of one rank: all ranks make the same one and call the same methods of it (`team.py`).

Each has a part of the model.
"""

import gc
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from turnwise.algorithms.algorithm import Algorithm
from turnwise.algorithms.registry import make_algorithm
from turnwise.config import Recipe
from turnwise.learning.batch import Example
from turnwise.learning.credits import Credits
from turnwise.learning.learner import MakeOffline, UpdateReport
from turnwise.learning.optimizer import trained_parameters
from turnwise.learning.signals.base import Signals
from turnwise.learning.signals.makers import (
    Models,
    SecondParts,
    Words,
    load_teachers,
    second_model,
    teacher_of,
)
from turnwise.models.copies import copy_to_divide
from turnwise.models.load import load_model
from turnwise.parts.one_process import RunLearner
from turnwise.storage.tensors import read
from turnwise.threads import release_memory
from turnwise.types import Group
from turnwise_cluster.learners.agreement import check_agreement
from turnwise_cluster.learners.process_group import ProcessGroup
from turnwise_cluster.learners.saving import PartOfCheckpoint, write_weights
from turnwise_cluster.settings import cluster_of


class Parts:
    """A learner, `RunLearner` or `OfflineSteps`, and its model on one rank.

    Args:
        model: becomes a part of one; its weights are those that rank 0 has.
        whole: the model that gets whole weights from `deliver`; None but on rank 0.
        make: makes the learner.
    """

    def __init__(
        self,
        ranks: ProcessGroup,
        recipe: Recipe,
        model: nn.Module,
        whole: nn.Module | None,
        make: Callable[[], Any],
    ) -> None:
        self._ranks, self._whole = ranks, whole
        ranks.slice_rows(cluster_of(recipe).sequence_ranks)
        ranks.expert_parallel = cluster_of(recipe).expert_parallel
        check_agreement(ranks, model, ranks.slicing)
        gc.collect()  # divided models hold themselves
        release_memory()
        self.learner = make()

    def update(
        self,
        groups: Sequence[Group],
        credits: Credits,
        demonstrations: Sequence[Example],
        signals: Signals | None,
        measure_variance: bool,
    ) -> UpdateReport:
        """See `PolicyLearner.update`; with the auxiliary loss of signals, if they are given."""
        auxiliary = None if signals is None else self.learner.auxiliary_loss(signals)
        given = groups, credits, demonstrations, auxiliary, measure_variance
        report: UpdateReport = self.learner.update(*given)
        return report

    def deliver(self) -> None:
        """Write the whole trained weights into the model that is to have them."""
        held, targets = self._trained()
        with torch.no_grad():
            for weight, target in zip(held, targets, strict=True):
                found = self._ranks.whole(weight)
                if target is not None:
                    target.copy_(found)

    def take(self) -> None:
        """Write the trained weights of the whole model into the ranks' parts."""
        held, sources = self._trained()
        with torch.no_grad():
            for weight, source in zip(held, sources, strict=True):
                self._ranks.write(weight, source)

    def _trained(self) -> tuple[Sequence[nn.Parameter], Sequence[nn.Parameter | None]]:
        """This rank's parts of weights, and the whole ones, None where they are not here."""
        held = self.learner.optimizer.parameters
        return held, [None] * len(held) if self._whole is None else trained_parameters(self._whole)

    def write_weights(self, folder: Path) -> None:
        """Write the whole weights, each rank its share, into a folder that all of them reach."""
        write_weights(self._ranks, self.learner.model, folder)

    def state(self) -> dict[str, Any]:
        """The learner's state; of tensors it has this rank's parts."""
        found: dict[str, Any] = self.learner.state()
        return found

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue where `state` was taken; this rank's parts are read from the checkpoint."""
        own = self.state()
        self.learner.load_state(read({key: state[key] for key in own}, own))

    def save(self, folder: Path) -> PartOfCheckpoint:
        """Copy what this rank writes of a checkpoint. On rank 0 the caller writes the copies, on
        others a thread."""
        part = PartOfCheckpoint(self._ranks, self.learner.model, self.state())
        if self._ranks.rank:
            threading.Thread(target=part.write, args=[folder], daemon=True).start()
        return part


def policy_parts(
    ranks: ProcessGroup,
    recipe: Recipe,
    model: nn.Module,
    reference: nn.Module | None,
    whole: nn.Module | None,
    words: Words | None,
    teachers: Models,
) -> Parts:
    """The parts of a policy's learner, with the second model where the algorithm has one; `words`
    are that model's. Reference and teachers become parts of one."""
    algorithm = algorithm_of(recipe)

    def make() -> RunLearner:
        second = second_model(SecondParts(recipe, algorithm, model, words, ranks))
        for model_of_teacher in teachers.values():
            check_agreement(ranks, model_of_teacher)
        teacher = teacher_of(recipe, teachers, ranks)
        given = reference, recipe.learning, algorithm, recipe.rollout.temperature, ranks
        return RunLearner(model, *given, second, teacher)

    return Parts(ranks, recipe, model, whole, make)


def algorithm_of(recipe: Recipe) -> Algorithm:
    return make_algorithm(recipe.algorithm.name, recipe.algorithm.overrides)


def _device(ranks: ProcessGroup) -> str:
    """The device of a rank, as a recipe names it."""
    return f"cuda:{torch.cuda.current_device()}" if ranks.device == "cuda" else ranks.device


def _model_of_worker(ranks: ProcessGroup, recipe: Recipe) -> PreTrainedModel:
    """A model of a rank but 0 for the same kind of device, to be divided; it gets its weights from
    that one."""
    config = recipe.model.model_copy(update={"device": _device(ranks)})
    model, _ = load_model(config, None, recipe.seed, recipe.rollout.max_tokens, in_files=True)
    return copy_to_divide(model)


def _policy_of_worker(
    ranks: ProcessGroup, recipe: Recipe, words: Words | None, has_reference: bool
) -> Parts:
    model = _model_of_worker(ranks, recipe)
    reference = _model_of_worker(ranks, recipe) if has_reference else None
    teachers = load_teachers(recipe, _device(ranks), in_files=True)
    return policy_parts(ranks, recipe, model, reference, None, words, teachers)


def _offline_of_worker(ranks: ProcessGroup, recipe: Recipe, make: MakeOffline) -> Parts:
    model = _model_of_worker(ranks, recipe)
    return Parts(ranks, recipe, model, None, lambda: make(recipe, model, ranks))


MAKERS: dict[str, Callable[..., Parts]] = {
    "build": _policy_of_worker,
    "build_offline": _offline_of_worker,
}
"""Makers of the parts of a rank but 0, by the name of the call."""
