"""A learner's model of which each rank has a part: what is put together of it, read and written.

Not here: what the learner computes (`parts.py`), and how a run sees it (`learner.py`).
"""

import threading
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn
from transformers import PreTrainedModel

from turnwise.config import Recipe
from turnwise.learning.optimizer import Optimizer, trained_parameters
from turnwise.models.copies import copy_to_divide
from turnwise.models.load import load_model
from turnwise.storage.tensors import read
from turnwise_cluster.learners.model_files import write_weights
from turnwise_cluster.learners.process_group import ProcessGroup
from turnwise_cluster.learners.saving import PartOfCheckpoint


class DividedLearner(Protocol):
    """A learner that has been given ranks."""

    optimizer: Optimizer

    @property
    def model(self) -> nn.Module:
        """The model that it moves, of which each rank has a part."""
        ...

    def state(self) -> dict[str, Any]:
        """All that a resumed run needs of it, of tensors this rank's parts."""
        ...

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue exactly where `state` was taken."""
        ...


class DividedModel:
    """The model of a learner on one rank; all ranks call the same methods.

    Args:
        whole: the model that gets whole weights from `deliver`; None but on rank 0.
    """

    def __init__(
        self, ranks: ProcessGroup, learner: DividedLearner, whole: nn.Module | None
    ) -> None:
        self._ranks, self._divided, self._whole = ranks, learner, whole

    def deliver(self) -> None:
        """Write the whole weights, of those that are trained, into the model that is to have
        them."""
        held = self._divided.optimizer.parameters
        targets = [None for _ in held] if self._whole is None else trained_parameters(self._whole)
        with torch.no_grad():
            for weight, target in zip(held, targets, strict=True):
                found = self._ranks.whole(weight)
                if target is not None:
                    target.copy_(found)

    def take(self) -> None:
        """Write the trained weights of the whole model into the ranks' parts: the way back of
        `deliver`."""
        held = self._divided.optimizer.parameters
        sources = [None for _ in held] if self._whole is None else trained_parameters(self._whole)
        with torch.no_grad():
            for weight, source in zip(held, sources, strict=True):
                self._ranks.write(weight, source)

    def write_weights(self, folder: Path) -> None:
        """Write the whole weights, each rank its share, into a folder that all of them reach."""
        write_weights(self._ranks, self._divided.model, folder)

    def state(self) -> dict[str, Any]:
        """The learner's state; of tensors it has this rank's parts."""
        return self._divided.state()

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue where the learner's `state` was taken; this rank's parts are read from the
        checkpoint."""
        own = self._divided.state()
        self._divided.load_state(read({key: state[key] for key in own}, own))

    def save(self, folder: Path) -> PartOfCheckpoint:
        """Copy what this rank writes of a checkpoint. On rank 0 the caller writes the copies, on
        others a thread."""
        part = PartOfCheckpoint(self._ranks, self._divided.model, self.state())
        if self._ranks.rank:
            threading.Thread(target=part.write, args=[folder], daemon=True).start()
        return part


def device_of(ranks: ProcessGroup) -> str:
    """The device of a rank, as a recipe names it."""
    return f"cuda:{torch.cuda.current_device()}" if ranks.device == "cuda" else ranks.device


def model_of_worker(ranks: ProcessGroup, recipe: Recipe) -> PreTrainedModel:
    """Load a model of a rank but 0 for the same kind of device, to be divided; it gets its weights
    from that one."""
    config = recipe.model.model_copy(update={"device": device_of(ranks)})
    model, _ = load_model(config, None, recipe.seed, recipe.rollout.max_tokens, in_files=True)
    return copy_to_divide(model)
