"""The reward model of a run: what its section makes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from turnwise.errors import DataError
from turnwise.parts.components import Components
from turnwise.parts.reward_source import RewardSource
from turnwise.rewards.parts import RewardPart
from turnwise.storage import checkpoint
from turnwise.storage.checkpoint import Checkpoint
from turnwise.storage.tensors import read
from turnwise.types import Group
from turnwise_judges.reward_model.model import FORMS, RewardModel
from turnwise_judges.settings import LEARNED_PARTS, RewardModelConfig

NAME = "reward_model"
"""The name of section, stage, and part, and of its state in checkpoints."""


@dataclass(frozen=True)
class RewardModelOfRun(RewardSource):
    """A reward model in a run. Example: `components.reward_sources["reward_model"].model`."""

    settings: RewardModelConfig
    model: RewardModel

    @property
    def parts(self) -> Mapping[str, RewardPart]:
        """The part `reward_model` of the reward."""
        return {NAME: replace(LEARNED_PARTS[self.settings.form], function=self.model.part_of)}

    def learn(self, groups: Sequence[Group]) -> dict[str, float]:
        """Make one update on the groups of a step, by what the verifier says of them, where the
        model learns beside the policy."""
        if not self.settings.beside_policy:
            return {}
        lessons = self.model.lessons_of_step(groups)
        metrics = self.model.update(lessons)
        self.model.finish(lessons)  # the centre of pairs moves with the model
        return metrics

    def state(self) -> dict[str, Any]:
        """Weights, optimizer state, and how far the training is; empty for a frozen model, which
        its own stage has saved."""
        return self.model.state() if self.settings.beside_policy else {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """See RewardSource. Raises ConfigError for a state of another form."""
        self.model.load_state(state)


def with_reward_model(settings: RewardModelConfig, components: Components) -> Components:
    """Give a run the reward model of its section: a copy of the policy as it is now, or as a run
    has trained it whose checkpoint the components were loaded from. Raises DataError where that run
    has none, or a damaged one."""
    model = FORMS[settings.form](components.model, settings, components.recipe.learning)
    if components.weights is not None:
        model.load_state(_trained(components.weights))
    made = RewardModelOfRun(settings, model)
    return replace(components, reward_sources={**components.reward_sources, NAME: made})


def _trained(weights: Path) -> dict[str, Any]:
    """The state of the reward model in the run of a checkpoint."""
    run = checkpoint.checkpoints_beside(weights)
    saved: Checkpoint | None = checkpoint.load(weights)
    damaged: dict[Path, str] = {}
    if saved is not None and NAME not in saved.learner:
        saved, damaged = checkpoint.newest_of_stage(checkpoint.root_of(run, NAME))
    if saved is None:
        why = "; ".join(damaged.values()) or f"there is no reward model in {run}"
        raise DataError(
            f"{why}: train anew, or leave it out with reward=false reward_model=false "
            "evaluation.best_of="
        )
    checkpoint.check_learner(saved.folder)
    found: dict[str, Any] = read(saved.learner[NAME])
    return found
