"""The learner of demonstrations, on as many processes as the recipe asks for.

Not here: when it learns (`cold_start.py`, `imitation.py`), and how (`learning/sft.py`).
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from turnwise.cluster.learners.learner import DistributedSupervised
from turnwise.cluster.learners.team import Team
from turnwise.config import SftConfig
from turnwise.errors import InfrastructureError
from turnwise.learning.sft import SupervisedLearner
from turnwise.storage.checkpoint import Checkpoint
from turnwise.storage.tensors import read
from turnwise.tokens import Tokens
from turnwise.training.context import RunContext


@contextmanager
def supervised_learner(
    context: RunContext,
    demonstrations: Sequence[Tokens],
    config: SftConfig,
    saved: Checkpoint | None,
) -> Iterator[SupervisedLearner | DistributedSupervised]:
    """Make the learner of the run's model, which goes on from a checkpoint of it if one is given.
    Afterwards the model has its weights, its checkpoints are whole, and its processes have
    ended."""
    recipe, model = context.recipe, context.components.model
    if recipe.cluster.learners == 1:
        learner = SupervisedLearner(model, demonstrations, config, recipe.learning, recipe.seed)
        if saved is not None:
            learner.load_state(read(saved.learner))
        yield learner
        return
    team = team_of(context)
    try:
        several = DistributedSupervised(team, recipe, model, demonstrations, config)
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
    cluster, ranks = recipe.cluster, context.hired.ranks
    return Team(cluster.learners, device, threads, cluster.seconds, logs, ranks, cluster.replicas)
