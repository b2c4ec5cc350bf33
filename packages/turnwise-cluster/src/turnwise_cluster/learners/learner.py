"""A policy's learner and critic on several processes, in the place of those on one.

Rank 0 keeps the whole model beside its part of one: the engine samples from it, signals are
measured with it; it gets the new weights after each update. Where the engine is in other processes,
the whole model stays in files, which all ranks write. Checkpoints are of all ranks. Not here: what
ranks compute (`parts.py`), and how they are run (`team.py`).
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
from turnwise.learning.signals.makers import Words
from turnwise.models.copies import copy_to_divide
from turnwise.models.in_files import is_in_files, map_weights, put_weights
from turnwise.storage import checkpoint, tensors
from turnwise.storage.checkpoint import Saveable
from turnwise.tokens import KeptTokens
from turnwise.types import Group, Trajectory
from turnwise_cluster.learners.parts import OfflineParts, Parts
from turnwise_cluster.learners.saving import PartOfCheckpoint, Saving
from turnwise_cluster.learners.team import Team


class DistributedModel:
    """A model that the processes of a team have parts of: its checkpoints.

    Args:
        team: has built its parts.
        model: whole; gets the new weights from `deliver`.
    """

    def __init__(self, team: Team, model: PreTrainedModel) -> None:
        self.team, self.model = team, model
        self._saving = Saving(team.seconds)

    def deliver(self) -> None:
        """Let the whole model have the present weights: written into its memory, or as other files
        where it stays in files. Raises InfrastructureError where the disk fails."""
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
        """All that a resumed run needs; of tensors it has the parts of this process."""
        found: dict[str, Any] = self.team.parts.state()
        return found

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue where `state`, of a checkpoint, was taken; each process reads its parts."""
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
        """Wait for the checkpoint that is being written, if there is one. Raises
        InfrastructureError where it cannot be."""
        self._saving.wait()

    def close(self) -> None:
        """End the other processes, when the last checkpoint is whole or cannot be. Idempotent."""
        with suppress(InfrastructureError):  # the one that ends the run is told
            self.wait_until_saved()
        self.team.close()


class DistributedLearner(DistributedModel):
    """Does what `RunLearner` does, on all processes of a team.

    Args:
        model: whole, on this process; all processes begin with its weights.
        reference: as for `PolicyLearner`; becomes a part of one.
        words: of the second model, where it needs some.
        teacher: another model that teaches, where there is one; becomes a part of one.
    """

    def __init__(
        self,
        team: Team,
        recipe: Recipe,
        model: PreTrainedModel,
        reference: PreTrainedModel | None,
        words: Words | None = None,
        teacher: PreTrainedModel | None = None,
    ) -> None:
        super().__init__(team, model)
        part = copy_to_divide(model)
        second = None if reference is None else copy_to_divide(reference)
        self._parts = team.build(
            lambda: Parts(team.ranks, recipe, part, second, model, words, teacher),
            "build",
            recipe,
            words,
            reference is not None,
        )

    @property
    def second(self) -> "DistributedSecondModel | None":
        """The second model, of an algorithm that has one."""
        return None if self._parts.policy.second is None else DistributedSecondModel(self.team)

    @property
    def teacher(self) -> "DistributedTeacher | None":
        """The teacher, where there is one."""
        return None if self._parts.policy.teacher is None else DistributedTeacher(self.team)

    def set_temperature(self, temperature: float) -> None:
        """See RunLearner."""
        self.team.call("set_temperature", temperature)

    def auxiliary_loss(self, signals: Signals) -> AuxiliaryLoss | None:
        """See RunLearner; it is that of this rank."""
        return self._parts.policy.auxiliary_loss(signals)

    @property
    def kl_coefficient(self) -> float:
        """See PolicyLearner."""
        return self._parts.policy.kl_coefficient

    def score(
        self,
        sequences: Sequence[Sequenced],
        measure: Measure | None = None,
        images: Images = (),
        kept: Sequence[KeptTokens | None] = (),
    ) -> list[NDArray[np.float32]]:
        """See PolicyLearner; each rank scores some of the sequences."""
        given = sequences, measure, images, kept
        found: list[NDArray[np.float32]] = self.team.call("score", *given)
        return found

    def reference_logprobs(self, members: Sequence[Trajectory]) -> list[NDArray[np.float64]]:
        """See PolicyLearner."""
        found: list[NDArray[np.float64]] = self.team.call("reference_logprobs", members)
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
        if not self._parts.policy.state()["masters"]:
            self.team.call("take")

    def lower_learning_rate(self, factor: float) -> float:
        """See PolicyLearner."""
        rate: float = self.team.call("lower_learning_rate", factor)
        return rate


class DistributedOffline(DistributedModel):
    """Does what `OfflineRunLearner` does, on all processes of a team.

    Args:
        model: whole, on this process.
        make: makes the learner of a rank.
    """

    def __init__(
        self, team: Team, recipe: Recipe, model: PreTrainedModel, make: MakeOffline
    ) -> None:
        super().__init__(team, model)
        part = copy_to_divide(model)
        self._learner = team.build(
            lambda: OfflineParts(team.ranks, recipe, make, part, model),
            "build_offline",
            recipe,
            make,
        ).learner
        self.name = self._learner.name

    @property
    def steps_done(self) -> int:
        """See OfflineSteps."""
        return self._learner.steps_done

    @property
    def finished(self) -> bool:
        """See OfflineSteps."""
        return self._learner.finished

    def step(self) -> dict[str, float]:
        """See OfflineSteps."""
        found: dict[str, float] = self.team.call("step")
        return found


class DistributedSecondModel:
    """The second model of a learner on several processes, such as a critic."""

    def __init__(self, team: Team) -> None:
        self._team = team

    def measure(self, groups: Sequence[Group]) -> Signals:
        """See Critic."""
        found: Signals = self._team.call("measure", groups)
        return found

    def update(
        self, groups: Sequence[Group], signals: Signals, credits: Credits
    ) -> dict[str, float]:
        """See Critic."""
        found: dict[str, float] = self._team.call("update_second", groups, signals, credits)
        return found


class DistributedTeacher:
    """The teacher, on all processes of a team."""

    def __init__(self, team: Team) -> None:
        self._team = team

    def measure(self, groups: Sequence[Group]) -> Signals:
        """See Signal."""
        found: Signals = self._team.call("measure_teacher", groups)
        return found
