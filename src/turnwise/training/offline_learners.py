"""Learners of demonstrations and of pairs, on as many processes as the recipe asks for.

Not here: when they learn (`cold_start.py`, `imitation.py`, `preferences.py`), and how (`learning`).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress

from turnwise.cluster.learners.learner import (
    DistributedOffline,
    DistributedPreferences,
    DistributedSupervised,
)
from turnwise.cluster.learners.team import Team
from turnwise.config import SftConfig
from turnwise.errors import InfrastructureError
from turnwise.learning.preferences import Pair, PreferenceLearner
from turnwise.learning.sft import SupervisedLearner
from turnwise.storage.checkpoint import Checkpoint
from turnwise.storage.tensors import read
from turnwise.tokens import Tokens
from turnwise.training.context import RunContext

Learner = SupervisedLearner | PreferenceLearner | DistributedOffline


def supervised_learner(
    context: RunContext,
    demonstrations: Sequence[Tokens],
    config: SftConfig,
    saved: Checkpoint | None,
) -> AbstractContextManager[Learner]:
    """Make the learner of demonstrations: see `_learner`."""
    recipe, model = context.recipe, context.components.model
    given = demonstrations, config
    return _learner(
        context,
        saved,
        lambda: SupervisedLearner(model, *given, recipe.learning, recipe.seed),
        lambda team: DistributedSupervised(team, recipe, model, *given),
    )


def preference_learner(
    context: RunContext, pairs: Sequence[Pair], saved: Checkpoint | None
) -> AbstractContextManager[Learner]:
    """Make the learner of pairs: see `_learner`."""
    recipe, model = context.recipe, context.components.model
    given = recipe.preferences, recipe.learning, recipe.rollout.temperature, recipe.seed
    return _learner(
        context,
        saved,
        lambda: PreferenceLearner(model, pairs, *given),
        lambda team: DistributedPreferences(team, recipe, model, pairs),
    )


@contextmanager
def _learner(
    context: RunContext,
    saved: Checkpoint | None,
    of_one: Callable[[], SupervisedLearner | PreferenceLearner],
    of_several: Callable[[Team], DistributedOffline],
) -> Iterator[Learner]:
    """Make the learner of the run's model, which goes on from a checkpoint of it if one is given.
    Afterwards the model has its weights, its checkpoints are whole, and its processes have
    ended."""
    if context.recipe.cluster.learners == 1:
        learner = of_one()
        if saved is not None:
            learner.load_state(read(saved.learner))
        yield learner
        return
    team = team_of(context)
    try:
        several = of_several(team)
        if saved is not None:
            several.load_state(saved.learner)
        try:
            yield several
        except InfrastructureError:
            with suppress(InfrastructureError):  # the one that ends the stage is told
                several.wait_until_saved()
            raise
        finally:
            several.wait_until_saved()
        several.deliver()
    finally:
        team.close()


def team_of(context: RunContext) -> Team:
    """The processes that a recipe's learner has, of which this one is the first."""
    recipe, device = context.recipe, context.components.model.device
    threads = max(1, recipe.threads // recipe.cluster.learners)
    logs = context.folder.path / "learners"
    cluster = recipe.cluster
    return Team(
        cluster.learners,
        device,
        threads,
        cluster.seconds,
        logs,
        context.hired.ranks,
        cluster.replicas,
        cluster.start_seconds,
    )
