"""The learners of a run that has this process alone; each writes its checkpoints itself, at once.

Those of several processes are in `packages/turnwise-cluster`.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from turnwise.algorithms.algorithm import Algorithm
from turnwise.config import LearningConfig, Recipe
from turnwise.learning.auxiliary import AuxiliaryLoss
from turnwise.learning.learner import ModelSignal, OfflineSteps
from turnwise.learning.policy import PolicyLearner
from turnwise.learning.ranks import ALONE, Ranks
from turnwise.learning.signals.base import Signals
from turnwise.learning.signals.makers import (
    MakeSecond,
    SecondParts,
    Words,
    load_teachers,
    second_model,
    teacher_of,
)
from turnwise.models.load import load_model
from turnwise.storage import checkpoint
from turnwise.storage.tensors import read


class OneProcess:
    """The learner of a run whose process has the whole model: it saves, broadcasts and ends it."""

    model: Any
    """The model whose weights a checkpoint has."""

    def save(
        self,
        root: Path,
        step: int,
        tokenizer: Any,
        state: Mapping[str, Any],
        learner: Mapping[str, Any],
        then: Callable[[], None],
    ) -> None:
        """Write a checkpoint, whole: see `Resumable.save`."""
        checkpoint.save(root, step, self.model, tokenizer, state, learner)
        then()

    def wait_until_saved(self) -> None:
        """Do nothing: `save` writes it whole."""

    def deliver(self) -> None:
        """Do nothing: the run's model is the one that learns."""

    def broadcast(self) -> None:
        """Do nothing: the weights are here alone."""

    def close(self) -> None:
        """Do nothing: there is nothing to end."""


class RunLearner(OneProcess, PolicyLearner):
    """A `PolicyLearner` with the models that its algorithm wants beside the policy.

    Args:
        second: makes the second model, of the policy's learner.
        teacher: the signal of the teachers' models, which never change.
    """

    def __init__(
        self,
        model: nn.Module,
        reference: nn.Module | None,
        config: LearningConfig,
        algorithm: Algorithm,
        temperature: float,
        ranks: Ranks = ALONE,
        second: MakeSecond | None = None,
        teacher: ModelSignal | None = None,
    ) -> None:
        super().__init__(model, reference, config, algorithm, temperature, ranks)
        self.second = None if second is None else second(self)
        self.teacher = teacher

    def set_temperature(self, temperature: float) -> None:
        # Greedy episodes have the log-probabilities of temperature 1 (`Sampling.temperature`).
        self.temperature = temperature or 1.0
        for model in (self.second, self.teacher):
            if model is not None:
                model.temperature = self.temperature

    def auxiliary_loss(self, signals: Signals) -> AuxiliaryLoss | None:
        return None if self.second is None else self.second.auxiliary_loss(signals)

    def state(self) -> dict[str, Any]:
        """See PolicyLearner; of the second model too."""
        state = super().state()
        return state if self.second is None else state | {"critic": self.second.state()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue exactly where `state` was taken, also one of a checkpoint."""
        # No other keys: each source of rewards reads its own tensors.
        own = read({key: state[key] for key in self.state()})
        super().load_state(own)
        if self.second is not None:
            self.second.load_state(own["critic"])


class OfflineRunLearner(OneProcess):
    """The learner of a run whose data is there before its first step.

    Args:
        steps: makes its updates, alone.
    """

    def __init__(self, steps: OfflineSteps) -> None:
        self._steps = steps
        self.model, self.name = steps.model, steps.name

    @property
    def steps_done(self) -> int:
        return self._steps.steps_done

    @property
    def finished(self) -> bool:
        return self._steps.finished

    def step(self) -> dict[str, float]:
        return self._steps.step()

    def state(self) -> dict[str, Any]:
        return self._steps.state()

    def load_state(self, state: Mapping[str, Any]) -> None:
        self._steps.load_state(read(state))


def run_learner(
    recipe: Recipe,
    algorithm: Algorithm,
    model: PreTrainedModel,
    words: Words | None,
    before_rl: Path | None,
) -> RunLearner:
    """The learner of a recipe's policy; arguments as for `Resources.learner`."""
    second = second_model(SecondParts(recipe, algorithm, model, words))
    reference = load_reference(recipe, algorithm, before_rl)
    teacher = teacher_of(recipe, load_teachers(recipe, recipe.model.device))
    given = reference, recipe.learning, algorithm, recipe.rollout.temperature
    return RunLearner(model, *given, second=second, teacher=teacher)


def load_reference(
    recipe: Recipe, algorithm: Algorithm, before_rl: Path | None, in_files: bool = False
) -> PreTrainedModel | None:
    """The reference of a KL term: the model of the checkpoint that RL begins with, or the one that
    the recipe names; None with LoRA, where it is the model without adapters. To be divided, it may
    stay in its files."""
    if not algorithm.has_reference or recipe.model.lora_rank:
        return None
    if before_rl is not None:
        checkpoint.check(before_rl)
    return load_model(
        recipe.model, before_rl, longest=recipe.rollout.max_tokens, in_files=in_files
    )[0]
