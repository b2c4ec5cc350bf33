"""A recipe's reward model, as a run uses it: a model that has learned to reward.

A wing makes it, by its function for the section `reward_model`, and trains it in a stage of its
own. Not here: how its numbers count (`rewarding.py`).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from turnwise.config import Recipe
from turnwise.rewards.parts import RewardPart
from turnwise.types import Group
from turnwise.wings import wings

if TYPE_CHECKING:
    from torch import nn


class RewardModel(Protocol):
    """The reward model of a run."""

    @property
    def part(self) -> RewardPart:
        """The part `reward_model` of the reward."""
        ...

    def check_data(self, run: Path) -> None:
        """Raise DataError for data that is not there, or lies in the folder of the new run, which
        would delete it."""
        ...

    def learn(self, groups: Sequence[Group]) -> dict[str, float]:
        """Learn from the groups of a step of RL, beside the policy; returns metrics."""
        ...

    def state(self) -> dict[str, Any]:
        """All that a resumed run needs of it."""
        ...

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue exactly where `state` was taken. Raises ConfigError for a state that is not of
        such a model."""
        ...


def reward_model_of(recipe: Recipe, policy: "nn.Module | None" = None) -> RewardModel | None:
    """The reward model that a recipe describes, if it does. Without a policy it can only be asked
    for its part, which has its range then, and to check its data.

    Raises MissingExtraError without the judges' wing.
    """
    if recipe.reward_model is None:
        return None
    make = wings().section("reward_model")
    model: RewardModel = make(recipe.reward_model, recipe.learning, policy)
    return model
