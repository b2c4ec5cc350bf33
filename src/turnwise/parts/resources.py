"""The processes and machines that a run has beside its own process, where its recipe asks for some.

They are the wing's of the section that asks.
"""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from transformers import PreTrainedModel

from turnwise.algorithms.algorithm import Algorithm
from turnwise.config import Recipe
from turnwise.engines.base import ServerPlaces
from turnwise.errors import ConfigError
from turnwise.learning.learner import Learner, MakeOffline, OfflineLearner
from turnwise.learning.ranks import ALONE
from turnwise.learning.signals.makers import Words
from turnwise.parts.one_process import OfflineRunLearner, run_learner
from turnwise.rollout.runner import Workers
from turnwise.wings import wings


@dataclass(frozen=True)
class Resources:
    """The processes of a run. `Resources()` is this one alone; a wing's class has more."""

    workers: Workers | None = None
    """Play its episodes; None where the run's process does."""
    servers: ServerPlaces | None = None
    """The places where servers are started; None where that is this machine."""
    colocated: bool = False
    """Whether servers share GPUs with the learner, and take turns with it."""

    def check(self, recipe: Recipe, model: PreTrainedModel) -> None:
        """Raise ConfigError for a model that cannot be trained here."""

    def learner(
        self,
        recipe: Recipe,
        algorithm: Algorithm,
        model: PreTrainedModel,
        words: Words | None,
        before_rl: Path | None,
    ) -> Learner:
        """The learner of a policy in RL, with the models beside it; `words` are the second model's,
        `before_rl` is the checkpoint that RL begins with, where there is one."""
        return run_learner(recipe, algorithm, model, words, before_rl)

    def offline_learner(
        self, recipe: Recipe, model: PreTrainedModel, make: MakeOffline
    ) -> OfflineLearner:
        """The learner of what is there before its first step: demonstrations, or pairs."""
        return OfflineRunLearner(make(recipe, model, ALONE))


def resources_of(recipe: Recipe, folder: Path | None) -> AbstractContextManager[Resources]:
    """Inside, there is what a recipe asks for; `folder` is the run's, if it is one. Raises
    ConfigError for two sections that each ask for processes."""
    asking = [name for name, section in recipe.added().items() if section.takes_resources]
    if len(asking) > 1:
        raise ConfigError(
            f"{' and '.join(asking)} each ask for processes beside the run's, and a run has one "
            "kind of them: leave one out"
        )
    if not asking:
        return nullcontext(Resources())
    found: AbstractContextManager[Resources] = wings().resources_of(asking[0])(recipe, folder)
    return found
