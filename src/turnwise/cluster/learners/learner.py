"""A policy's learner and critic on several processes, in the place of those on one.

Rank 0 keeps the whole model beside its part of one: the engine samples from it, signals are
measured with it, checkpoints are written of it; it gets the new weights after each update. Not
here: what ranks compute (`parts.py`), and how they are run (`team.py`).
"""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from turnwise.cluster.learners.team import Team
from turnwise.config import Recipe
from turnwise.learning.auxiliary import AuxiliaryLoss
from turnwise.learning.batch import Example
from turnwise.learning.credits import Credits
from turnwise.learning.policy import UpdateReport
from turnwise.learning.signals.base import Signals
from turnwise.types import Group, Trajectory


class DistributedLearner:
    """Does what `PolicyLearner` does, on all processes of a team.

    Args:
        model: whole, on this process; all processes begin with its weights.
        reference: as for `PolicyLearner`; becomes a part of one.
    """

    def __init__(
        self, team: Team, recipe: Recipe, model: nn.Module, reference: nn.Module | None
    ) -> None:
        self.model = model
        self.temperature = recipe.rollout.temperature or 1.0
        self.team = team
        team.build(recipe, copy.deepcopy(model), reference, model)

    @property
    def kl_coefficient(self) -> float:
        """See PolicyLearner."""
        return self.team.parts.policy.kl_coefficient

    def reference_logprobs(self, members: Sequence[Trajectory]) -> list[NDArray[np.float64]]:
        """See PolicyLearner."""
        found: list[NDArray[np.float64]] = self.team.call(
            "reference_logprobs", self.temperature, members
        )
        return found

    def update(
        self,
        groups: Sequence[Group],
        credits: Credits,
        demonstrations: Sequence[Example] = (),
        auxiliary: AuxiliaryLoss | None = None,
        measure_variance: bool = False,
    ) -> UpdateReport:
        """See PolicyLearner; an auxiliary loss and the variance are for one process alone."""
        assert auxiliary is None  # both are refused before the run
        assert not measure_variance
        report: UpdateReport = self.team.call(
            "update", self.temperature, groups, credits, demonstrations
        )
        self.team.call("deliver")
        return report

    def state(self) -> dict[str, Any]:
        """See PolicyLearner."""
        found: dict[str, Any] = self.team.call("state")
        return found

    def load_state(self, state: Mapping[str, Any]) -> None:
        """See PolicyLearner."""
        self.team.call("load_state", dict(state))


class DistributedCritic:
    """The critic of a learner on several processes, as `Critic` is that of one."""

    def __init__(self, team: Team) -> None:
        self._team = team

    def measure(self, groups: Sequence[Group]) -> Signals:
        """See Critic."""
        found: Signals = self._team.call("measure_values", groups)
        return found

    def update(
        self, groups: Sequence[Group], signals: Signals, credits: Credits
    ) -> dict[str, float]:
        """See Critic."""
        found: dict[str, float] = self._team.call("update_critic", groups, signals, credits)
        return found

    def state(self) -> dict[str, Any]:
        """See Critic."""
        found: dict[str, Any] = self._team.call("critic_state")
        return found

    def load_state(self, state: Mapping[str, Any]) -> None:
        """See Critic."""
        self._team.call("load_critic_state", dict(state))
