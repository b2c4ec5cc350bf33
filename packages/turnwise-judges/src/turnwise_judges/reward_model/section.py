"""The reward model of a run, as turnwise asks for it: what its section makes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from turnwise.config import LearningConfig, RewardModelConfig
from turnwise.errors import DataError
from turnwise.rewards.parts import RewardPart, Scope
from turnwise.types import Group

if TYPE_CHECKING:
    from torch import nn

    from turnwise_judges.reward_model.model import RewardModel


PARTS: Mapping[str, RewardPart] = {
    "outcome": RewardPart(0, 1, "chance of success, by a reward model"),
    "process": RewardPart(
        -1, 1, "change of the chance of success, by a reward model", Scope.TURNS, (-1, 1)
    ),
    "pairs": RewardPart(0, 1, "chance of being preferred, by a reward model"),
}
"""Parts by form, known before any model is loaded."""


@dataclass(frozen=True)
class RewardModelOfRun:
    """A reward model in a run; without a policy it has a part without a function, and data to
    check."""

    settings: RewardModelConfig
    made: "RewardModel | None"

    @property
    def model(self) -> "RewardModel":
        assert self.made is not None  # a run has its policy
        return self.made

    @property
    def part(self) -> RewardPart:
        function = None if self.made is None else self.made.part_of
        return replace(PARTS[self.settings.form], function=function)

    def check_data(self, run: Path) -> None:
        """Raise DataError for a source that is not there, or in the new run's folder, which is
        replaced."""
        for source in map(Path, self.settings.data):
            if source.resolve().is_relative_to(run.resolve()):
                raise DataError(
                    f"reward_model.data: {source} lies in {run}, which the new run replaces: "
                    "choose another folder with --run"
                )
            if not source.exists():
                raise DataError(f"reward_model.data: there is no {source}")

    def learn(self, groups: Sequence[Group]) -> dict[str, float]:
        lessons = self.model.lessons_of_step(groups)
        metrics = self.model.update(lessons)
        self.model.finish(lessons)  # the centre of pairs moves with the model
        return metrics

    def state(self) -> dict[str, Any]:
        return self.model.state()

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.model.load_state(state)


def make_reward_model(
    settings: RewardModelConfig, learning: LearningConfig, policy: "nn.Module | None"
) -> RewardModelOfRun:
    """A copy of the policy as it is now."""
    if policy is None:
        return RewardModelOfRun(settings, None)
    from turnwise_judges.reward_model.model import FORMS

    return RewardModelOfRun(settings, FORMS[settings.form](policy, settings, learning))
