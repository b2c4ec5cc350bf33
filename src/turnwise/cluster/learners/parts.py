"""The learners of one rank: all ranks make the same ones and call the same methods of them.

Not here: who calls (`team.py`, `worker.py`), and how a run sees it (`learner.py`).
"""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from turnwise.algorithms.parts import Requirement
from turnwise.algorithms.registry import Algorithm, make_algorithm
from turnwise.cluster.learners.agreement import check_agreement
from turnwise.cluster.learners.process_group import ProcessGroup
from turnwise.cluster.learners.saving import PartOfCheckpoint
from turnwise.config import Recipe, SeparateCriticConfig
from turnwise.learning.batch import Example
from turnwise.learning.credits import Credits
from turnwise.learning.optimizer import trained_parameters
from turnwise.learning.policy import PolicyLearner, UpdateReport
from turnwise.learning.signals.base import Signals
from turnwise.learning.signals.critic import Critic
from turnwise.learning.signals.value_head import make_critic
from turnwise.models.load import load_model
from turnwise.storage.tensors import read
from turnwise.types import Group, Trajectory


class Parts:
    """A policy's learner, and its critic where the algorithm has one.

    Args:
        model: of the recipe; becomes a part of one. Its weights, and those of the reference, are
            those that rank 0 has.
        whole: the model that gets whole weights from `deliver`; None but on rank 0.
    """

    def __init__(
        self,
        ranks: ProcessGroup,
        recipe: Recipe,
        model: nn.Module,
        reference: nn.Module | None,
        whole: nn.Module | None,
    ) -> None:
        self._ranks, self._whole = ranks, whole
        algorithm, learning = algorithm_of(recipe), recipe.learning
        check_agreement(ranks, model)
        self._critic: Critic | None = None
        if Requirement.CRITIC in algorithm.needs:
            config = recipe.algorithm.critic or SeparateCriticConfig()
            self._critic = make_critic(model, config, learning, ranks)
        temperature = recipe.rollout.temperature
        self.policy = PolicyLearner(model, reference, learning, algorithm, temperature, ranks)

    @property
    def critic(self) -> Critic:
        """The critic of an algorithm that has one."""
        assert self._critic is not None
        return self._critic

    def update(
        self,
        temperature: float,
        groups: Sequence[Group],
        credits: Credits,
        demonstrations: Sequence[Example],
    ) -> UpdateReport:
        """See `PolicyLearner.update`."""
        self.policy.temperature = temperature
        return self.policy.update(groups, credits, demonstrations)

    def reference_logprobs(
        self, temperature: float, members: Sequence[Trajectory]
    ) -> list[NDArray[np.float64]]:
        """See `PolicyLearner.reference_logprobs`; each rank computes all of them."""
        self.policy.temperature = temperature
        return self.policy.reference_logprobs(members)

    def deliver(self) -> None:
        """Write the whole weights, of those that are trained, into the model that is to have
        them."""
        held = self.policy.optimizer.parameters
        targets = [None for _ in held] if self._whole is None else trained_parameters(self._whole)
        with torch.no_grad():
            for weight, target in zip(held, targets, strict=True):
                found = self._ranks.whole(weight)
                if target is not None:
                    target.copy_(found)

    def state(self) -> dict[str, Any]:
        """See `PolicyLearner.state`; of the critic too. Of tensors it has this rank's parts."""
        critic = {} if self._critic is None else {"critic": self._critic.state()}
        return self.policy.state() | critic

    def load_state(self, state: dict[str, Any]) -> None:
        """See `PolicyLearner.load_state`; this rank's parts are read from the checkpoint."""
        own = self.policy.state()
        self.policy.load_state(read({key: state[key] for key in own}, own))

    def save(self, folder: Path) -> PartOfCheckpoint:
        """Copy what this rank writes of a checkpoint. On rank 0 the caller writes the copies, on
        others a thread."""
        part = PartOfCheckpoint(self._ranks, self.policy.model, self.state())
        if self._ranks.rank:
            threading.Thread(target=part.write, args=[folder], daemon=True).start()
        return part

    def measure_values(self, groups: Sequence[Group]) -> Signals:
        """See `Critic.measure`."""
        return self.critic.measure(groups)

    def update_critic(
        self, groups: Sequence[Group], signals: Signals, credits: Credits
    ) -> dict[str, float]:
        """See `Critic.update`."""
        return self.critic.update(groups, signals, credits)

    def load_critic_state(self, state: dict[str, Any]) -> None:
        """See `Critic.load_state`; this rank's parts are read from the checkpoint."""
        self.critic.load_state(read(state, self.critic.state()))


def algorithm_of(recipe: Recipe) -> Algorithm:
    """The algorithm that a recipe names."""
    return make_algorithm(recipe.algorithm.name, recipe.algorithm.overrides)


def parts_of_worker(ranks: ProcessGroup, recipe: Recipe) -> Parts:
    """Make the parts of a rank but 0, which gets its weights from that one."""
    config, longest = recipe.model, recipe.rollout.max_tokens
    if torch.cuda.is_available() and config.device != "cpu":
        config = config.model_copy(update={"device": f"cuda:{ranks.rank}"})
    model, _ = load_model(config, None, recipe.seed, longest)
    reference = None
    if algorithm_of(recipe).has_reference and not config.lora_rank:
        reference, _ = load_model(config, None, recipe.seed, longest)
    return Parts(ranks, recipe, model, reference, None)
