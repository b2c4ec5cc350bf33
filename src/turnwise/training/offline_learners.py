"""Learners of demonstrations and the like, from their making to their end."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial

from turnwise.config import SftConfig
from turnwise.errors import InfrastructureError
from turnwise.learning.learner import MakeOffline, OfflineLearner
from turnwise.learning.sft import supervised
from turnwise.storage.checkpoint import Checkpoint
from turnwise.tokens import Tokens
from turnwise.training.context import RunContext


def supervised_learner(
    context: RunContext,
    demonstrations: Sequence[Tokens],
    config: SftConfig,
    saved: Checkpoint | None,
) -> AbstractContextManager[OfflineLearner]:
    return offline_learner(context, partial(supervised, demonstrations, config), saved)


@contextmanager
def offline_learner(
    context: RunContext, make: MakeOffline, saved: Checkpoint | None
) -> Iterator[OfflineLearner]:
    """Inside, the learner goes on from a checkpoint of it if one is given. Afterwards the run's
    model has its weights, its checkpoints are whole, and its processes have ended."""
    model = context.components.model
    learner = context.resources.offline_learner(context.recipe, model, make)
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
