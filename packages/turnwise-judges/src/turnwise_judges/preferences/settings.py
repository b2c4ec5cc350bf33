"""Settings of preferences: `[preferences]`."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from turnwise.config.wing_section import WingSection
from turnwise.conflicts import Claim, Need

if TYPE_CHECKING:
    from turnwise.config import Recipe

A_JUDGE = "a judge"
"""The need of a judge, which a recipe without the section `judge` denies."""


class PreferencesConfig(WingSection):
    """Learning from pairs of the policy's own trajectories, after RL. `steps = 0` skips it."""

    always: ClassVar[bool] = True

    steps: int = Field(0, ge=0)
    """Updates."""
    pairs: int = Field(256, ge=1)
    """Groups to sample, of `train.group_size` trajectories each; a group whose rewards differ gives
    a pair, its best and its worst."""
    by: Literal["reward", "judge"] = "reward"
    """The numbers that best and worst are found by: rewards, or those of `[judge]` in their place
    (RLAIF)."""
    batch_size: int = Field(16, ge=1)
    """Pairs per update."""
    beta: float = Field(0.1, gt=0)
    """Strength that holds the policy to the one that the stage began with."""
    learning_rate: float = Field(5e-6, gt=0)
    """The rate of this stage: see `learning.learning_rate`."""

    @property
    def policy_updates(self) -> int:
        return self.steps

    @property
    def trains(self) -> str:
        return f"preferences, {self.steps} steps" if self.steps else ""

    @property
    def asks_judge(self) -> bool:
        """Whether best and worst are found by a judge."""
        return self.by == "judge" and self.steps > 0

    def misfits(self, recipe: "Recipe") -> Iterator[str]:
        """A group without a pair."""
        size = recipe.train.group_size
        if self.steps and size < 2:
            yield (
                f"train.group_size is {size}, and preferences are learned from pairs of one group: "
                "give at least 2"
            )

    def claims(self) -> Iterator[Claim]:
        if self.steps:
            needs = (Need.ONE_CONTEXT, A_JUDGE) if self.asks_judge else (Need.ONE_CONTEXT,)
            yield Claim("preferences.steps", needs)
