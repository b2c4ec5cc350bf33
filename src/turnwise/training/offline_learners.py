"""Learners of demonstrations and of pairs, from their making to their end.

Not here: when they learn (`cold_start.py`, `imitation.py`, `preferences.py`), and how (`learning`).
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress

from turnwise.config import SftConfig
from turnwise.errors import InfrastructureError
from turnwise.learning.learner import OfflineLearner
from turnwise.learning.preferences import Pair
from turnwise.storage.checkpoint import Checkpoint
from turnwise.tokens import Tokens
from turnwise.training.context import RunContext


def supervised_learner(
    context: RunContext,
    demonstrations: Sequence[Tokens],
    config: SftConfig,
    saved: Checkpoint | None,
) -> AbstractContextManager[OfflineLearner]:
    """Make the learner of demonstrations: see `_going_on`."""
    recipe, model = context.recipe, context.components.model
    made = context.resources.supervised_learner(recipe, model, demonstrations, config)
    return _going_on(made, saved)


def preference_learner(
    context: RunContext, pairs: Sequence[Pair], saved: Checkpoint | None
) -> AbstractContextManager[OfflineLearner]:
    """Make the learner of pairs: see `_going_on`."""
    recipe, model = context.recipe, context.components.model
    return _going_on(context.resources.preference_learner(recipe, model, pairs), saved)


@contextmanager
def _going_on(learner: OfflineLearner, saved: Checkpoint | None) -> Iterator[OfflineLearner]:
    """Inside, the learner goes on from a checkpoint of it if one is given. Afterwards the run's
    model has its weights, its checkpoints are whole, and its processes have ended."""
    try:
        if saved is not None:
            learner.load_state(saved.learner)
        try:
            yield learner
        except InfrastructureError:
            with suppress(InfrastructureError):  # the one that ends the stage is told
                learner.wait_until_saved()
            raise
        finally:
            learner.wait_until_saved()
        learner.deliver()
    finally:
        learner.close()
