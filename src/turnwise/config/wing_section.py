"""A section that a wing adds to recipes, and all that a run asks of one.

The core reads no setting of such a section: it asks what stands here, and a section answers what
concerns it. The wing's function makes its part (`Wing.sections`).
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from turnwise.config.section import IS_MODEL, IS_PATH, Choice, Section

__all__ = ["IS_MODEL", "IS_PATH", "Choice", "Section", "WingSection"]

if TYPE_CHECKING:
    from turnwise.config.recipe import Recipe


class WingSection(Section):
    """A section of a wing's own (`Wing.settings`); what it says nothing about is as given here."""

    always: ClassVar[bool] = False
    """Whether a recipe that leaves the section out has its defaults; else it has none."""

    @property
    def policy_updates(self) -> int:
        """Updates of the policy in a stage that the section asks for."""
        return 0

    @property
    def trains(self) -> str:
        """The training that it asks for, for reports: "preferences, 20 steps"; empty for none."""
        return ""

    @property
    def divides_policy(self) -> bool:
        """Whether no process of the run needs the whole policy in its memory."""
        return False

    @property
    def takes_resources(self) -> bool:
        """Whether the run needs more than its own process (`Wing.resources`)."""
        return False

    def misfits(self, recipe: "Recipe") -> Iterator[str]:
        """Each misfit with the rest of a recipe, as a sentence that says what to do."""
        yield from ()

    def group_sizes(self) -> Mapping[str, int]:
        """The sizes of groups that the algorithm compares, beside `train.group_size`, by key."""
        return {}

    def reward_parts(self, recipe: "Recipe") -> Mapping[str, Any]:
        """The parts of the reward (`turnwise.rewards.parts.RewardPart`) that its model measures, by
        name, with their ranges; there is no model yet. Raises ConfigError for what cannot work."""
        return {}

    def check_new_run(self, folder: Path) -> None:
        """Raise DataError for files that are not there, or that lie in the folder of a run which is
        about to begin, and would delete them."""

    def for_evaluation(self, of_run: bool) -> Self:
        """The section by which an evaluation alone gets resources: of a run's weights, or else of a
        recipe's. Raises ConfigError for what only a run has."""
        return self
