"""Settings of a reward model, its form, its data, and how long it is trained: `[reward_model]`."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field

from turnwise.config.section import IS_PATH
from turnwise.config.wing_section import WingSection
from turnwise.conflicts import Claim, Need
from turnwise.errors import ConfigError, DataError
from turnwise.rewards.parts import RewardPart, Scope

if TYPE_CHECKING:
    from turnwise.config import Recipe

PARTS: Mapping[str, RewardPart] = {
    "outcome": RewardPart(0, 1, "chance of success, by a reward model"),
    "process": RewardPart(
        -1, 1, "change of the chance of success, by a reward model", Scope.TURNS, (-1, 1)
    ),
    "pairs": RewardPart(0, 1, "chance of being preferred, by a reward model"),
}
"""Parts by form, known before any model is loaded."""


class RewardModelConfig(WingSection):
    """A learned reward: the part `reward_model` of the reward, trained before anything else."""

    form: Literal["outcome", "process", "pairs"] = "outcome"
    """The chance of success after an episode (`outcome`), the change of that chance by each turn
    (`process`), or the chance of being preferred to the mean episode (`pairs`: Bradley-Terry)."""
    data: tuple[Annotated[str, IS_PATH], ...] = Field(min_length=1)
    """Run folders, whose RL steps are read, files of trajectories (.parquet), and files of
    conversations (.jsonl): `messages` with `success`, or `prompt`, `chosen` and `rejected`."""
    steps: int = Field(200, ge=1)
    """Updates before the run's other stages."""
    batch_size: int = Field(16, ge=1)
    """Episodes, or pairs, of an update."""
    learning_rate: float = Field(1e-4, gt=0)
    """Constant learning rate of AdamW, after a warm-up."""
    heldout_share: float = Field(0.1, ge=0, lt=1)
    """Share of the data's tasks on which the model is measured and not trained."""
    beside_policy: bool = False
    """One more update in each step of RL, on that step's episodes and what the verifier says of
    them; without it the model is frozen."""

    @property
    def trains(self) -> str:
        return f"reward model ({self.form}), {self.steps} steps"

    def misfits(self, recipe: "Recipe") -> Iterator[str]:
        """A reward model without a use."""
        if recipe.reward is None or "reward_model" not in recipe.reward.used:
            yield (
                "nothing asks the reward model: name it in reward.parts, as in "
                "reward.parts.reward_model = 0.5 (a weight of 0 measures it alone), or leave "
                "[reward_model] out"
            )

    def reward_parts(self, recipe: "Recipe") -> Mapping[str, RewardPart]:
        return {"reward_model": PARTS[self.form]}

    def check_new_run(self, folder: Path) -> None:
        for source in map(Path, self.data):
            if source.resolve().is_relative_to(folder.resolve()):
                raise DataError(
                    f"reward_model.data: {source} lies in {folder}, which the new run replaces: "
                    "choose another folder with --run"
                )
            if not source.exists():
                raise DataError(f"reward_model.data: there is no {source}")

    def for_evaluation(self, of_run: bool) -> Self:
        if of_run:
            return self
        raise ConfigError(
            "the reward model is trained by a run, and a recipe alone has none: evaluate the run's "
            "folder, or leave it out with reward=false reward_model=false evaluation.best_of="
        )

    def claims(self) -> Iterator[Claim]:
        yield Claim("reward_model", (Need.WORDS,))
        if self.beside_policy:
            later = {Need.FIXED_REWARD: "would leave the best policy with a later one"}
            yield Claim("reward_model.beside_policy", (Need.STILL_POLICY,), later)
