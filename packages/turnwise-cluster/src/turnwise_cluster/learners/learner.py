"""A policy's learner and critic on several processes, in the place of those on one.

Rank 0 keeps the whole model beside its part of one: the engine samples from it, signals are
measured with it; it gets the new weights after each update. Where the engine is in other processes,
the whole model stays in files, which all ranks write. Checkpoints are of all ranks.
"""

import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from torch import nn
from transformers import PreTrainedModel

from turnwise.config import Recipe
from turnwise.errors import InfrastructureError
from turnwise.forward.hidden import Images
from turnwise.learning.auxiliary import AuxiliaryLoss
from turnwise.learning.batch import Example
from turnwise.learning.credits import Credits
from turnwise.learning.learner import MakeOffline, UpdateReport
from turnwise.learning.scoring import Measure, Sequenced
from turnwise.learning.signals.base import Signals
from turnwise.learning.signals.makers import Models, Words
from turnwise.models.copies import copy_to_divide, is_in_files, map_weights, put_weights
from turnwise.storage import checkpoint, tensors
from turnwise.storage.checkpoint import Saveable
from turnwise.tokens import KeptTokens
from turnwise.types import Group, Trajectory
from turnwise_cluster.learners.parts import Parts, policy_parts
from turnwise_cluster.learners.saving import PartOfCheckpoint, Saving
from turnwise_cluster.learners.team import Team


class DistributedModel:
    """A model that the processes of a team have parts of, whole here: its checkpoints."""

    def __init__(self, team: Team, model: PreTrainedModel) -> None:
        self.team, self.model = team, model
        self._saving = Saving(team.seconds)

    def deliver(self) -> None:
        """Let the whole model have the present weights, in its memory or its files. Raises
        InfrastructureError where the disk fails."""
        if not is_in_files(self.model) or hasattr(self.model, "peft_config"):
            self.team.call("deliver")
            return
        folder = self.team.logs / "weights"
        try:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            self.team.call("write_weights", folder)
            map_weights(self.model, folder)
        except (OSError, SafetensorError) as error:
            raise InfrastructureError(
                f"the weights cannot be written to {folder}: {error}"
            ) from error
        finally:
            shutil.rmtree(folder, ignore_errors=True)  # the model keeps what it has mapped

    def state(self) -> dict[str, Any]:
        """See Learner; of tensors it has the parts of this process."""
        found: dict[str, Any] = self.team.parts.state()
        return found

    def load_state(self, state: Mapping[str, Any]) -> None:
        """See Learner; each process reads its parts of a checkpoint."""
        self.team.call("load_state", dict(state))

    def save(
        self,
        root: Path,
        step: int,
        tokenizer: Saveable,
        state: Mapping[str, Any],
        learner: Mapping[str, Any],
        then: Callable[[], None],
    ) -> None:
        """Begin to write a checkpoint as `checkpoint.save` does, each process its part; returns
        when all has been copied. `then` is called when it is whole. Waits for the one before, and
        raises what has gone wrong with it."""
        self.wait_until_saved()
        part: PartOfCheckpoint = self.team.call("save", checkpoint.draft(root, step))
        rest, held = tensors.parted(learner)
        part.add(held)

        def write(folder: Path) -> dict[str, str]:
            checkpoint.save_beside_weights(folder, tokenizer, rest)
            return part.write(folder)

        def work() -> None:
            checkpoint.save_with(root, step, state, write)
            then()

        self._saving.begin(work, f"the checkpoint of step {step}")

    def wait_until_saved(self) -> None:
        """Raises InfrastructureError for a checkpoint that cannot be written."""
        self._saving.wait()

    def close(self) -> None:
        """End the other processes, when the last checkpoint is whole or cannot be. Idempotent."""
        with suppress(InfrastructureError):  # the one that ends the run is told
            self.wait_until_saved()
        self.team.close()


class DistributedLearner(DistributedModel):
    """Does what `RunLearner` does, on all processes of a team. They begin with the weights of
    `model`, which is whole, on this process; reference and teachers become parts of one."""

    def __init__(
        self,
        team: Team,
        recipe: Recipe,
        model: PreTrainedModel,
        reference: PreTrainedModel | None,
        words: Words | None = None,
        teachers: Models | None = None,
    ) -> None:
        super().__init__(team, model)
        part = copy_to_divide(model)
        second = None if reference is None else copy_to_divide(reference)
        self._own = team.build(
            lambda: policy_parts(team.ranks, recipe, part, second, model, words, teachers or {}),
            "build",
            recipe,
            words,
            reference is not None,
        ).learner

    @property
    def second(self) -> "DistributedSignal | None":
        return None if self._own.second is None else DistributedSignal(self.team, "second")

    @property
    def teacher(self) -> "DistributedSignal | None":
        return None if self._own.teacher is None else DistributedSignal(self.team, "teacher")

    def set_temperature(self, temperature: float) -> None:
        self.team.call("learner.set_temperature", temperature)

    def auxiliary_loss(self, signals: Signals) -> AuxiliaryLoss | None:
        """See RunLearner; it is that of this rank."""
        found: AuxiliaryLoss | None = self._own.auxiliary_loss(signals)
        return found

    @property
    def kl_coefficient(self) -> float:
        return float(self._own.kl_coefficient)

    def score(
        self,
        sequences: Sequence[Sequenced],
        measure: Measure | None = None,
        images: Images = (),
        kept: Sequence[KeptTokens | None] = (),
    ) -> list[NDArray[np.float32]]:
        """See PolicyLearner; each rank scores some of the sequences."""
        given = sequences, measure, images, kept
        found: list[NDArray[np.float32]] = self.team.call("learner.score", *given)
        return found

    def reference_logprobs(self, members: Sequence[Trajectory]) -> list[NDArray[np.float64]]:
        found: list[NDArray[np.float64]] = self.team.call("learner.reference_logprobs", members)
        return found

    def update(
        self,
        groups: Sequence[Group],
        credits: Credits,
        demonstrations: Sequence[Example] = (),
        auxiliary: AuxiliaryLoss | None = None,
        measure_variance: bool = False,
    ) -> UpdateReport:
        """See PolicyLearner; of an auxiliary loss each rank makes its own."""
        signals = None if auxiliary is None else auxiliary.signals
        report: UpdateReport = self.team.call(
            "update", groups, credits, demonstrations, signals, measure_variance
        )
        self.deliver()
        return report

    def take_weights(self, model: nn.Module) -> None:
        """See PolicyLearner; each rank takes its part."""
        put_weights(self.model, model)
        self.team.call("take")

    def broadcast(self) -> None:
        """Let every rank have the trained weights of the whole model, into which something may have
        been written. Of weights in bfloat16 the masters count, here as on one process."""
        if not self._own.state()["masters"]:
            self.team.call("take")

    def lower_learning_rate(self, factor: float) -> float:
        rate: float = self.team.call("learner.lower_learning_rate", factor)
        return rate


class DistributedOffline(DistributedModel):
    """Does what `OfflineRunLearner` does, on all processes of a team; `make` makes the learner of a
    rank."""

    def __init__(
        self, team: Team, recipe: Recipe, model: PreTrainedModel, make: MakeOffline
    ) -> None:
        super().__init__(team, model)
        part = copy_to_divide(model)
        self._learner = team.build(
            lambda: Parts(team.ranks, recipe, part, model, lambda: make(recipe, part, team.ranks)),
            "build_offline",
            recipe,
            make,
        ).learner
        self.name: str = self._learner.name

    @property
    def steps_done(self) -> int:
        return int(self._learner.steps_done)

    @property
    def finished(self) -> bool:
        return bool(self._learner.finished)

    def step(self) -> dict[str, float]:
        found: dict[str, float] = self.team.call("learner.step")
        return found


class DistributedSignal:
    """The second model, such as a critic, or the teacher of a learner on several processes."""

    def __init__(self, team: Team, name: str) -> None:
        self._team, self._name = team, f"learner.{name}"

    def measure(self, groups: Sequence[Group]) -> Signals:
        found: Signals = self._team.call(f"{self._name}.measure", groups)
        return found

    def update(
        self, groups: Sequence[Group], signals: Signals, credits: Credits
    ) -> dict[str, float]:
        given = groups, signals, credits
        found: dict[str, float] = self._team.call(f"{self._name}.update", *given)
        return found
