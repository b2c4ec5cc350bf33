"""A recipe's reward model, as a run uses it: a model that has learned to reward.

A wing makes it, by its function for the section `reward_model`, and trains it in a stage of its
own. Not here: how its numbers count (`rewarding.py`).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from turnwise.config import Recipe
from turnwise.errors import DataError
from turnwise.rewards.parts import RewardPart
from turnwise.storage import checkpoint
from turnwise.storage.checkpoint import Checkpoint, StageName
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


def trained_reward_model(
    recipe: Recipe, policy: "nn.Module", weights: Path | None
) -> RewardModel | None:
    """The reward model of a recipe, as a run has trained it whose checkpoint is given. Raises
    DataError where that run has none, or a damaged one."""
    model = reward_model_of(recipe, policy)
    if model is None or weights is None:
        return model
    from turnwise.storage.tensors import read

    run = checkpoint.checkpoints_beside(weights)
    saved: Checkpoint | None = checkpoint.load(weights)
    damaged: dict[Path, str] = {}
    if saved is not None and "reward_model" not in saved.learner:
        root = checkpoint.root_of(run, StageName.REWARD_MODEL)
        saved, damaged = checkpoint.newest_of_stage(root)
    if saved is None:
        why = "; ".join(damaged.values()) or f"there is no reward model in {run}"
        raise DataError(
            f"{why}: train anew, or leave it out with reward=false reward_model=false "
            "evaluation.best_of="
        )
    checkpoint.check_learner(saved.folder)
    model.load_state(read(saved.learner["reward_model"]))
    return model
