"""The makers of signals by the names of the needs: the core's, and those of wings.

A maker and its signal are imported when an algorithm needs it, and nothing here loads torch.
"""

from typing import Any

from turnwise.algorithms.algorithm import Algorithm
from turnwise.algorithms.parts import GIVEN_BY_ROLLOUTS, Requirement
from turnwise.registry import Registry

SIGNALS: Registry[type[Any]] = Registry(
    "signal",
    lambda found: isinstance(found, type) and hasattr(found, "of_policy"),
    "derive the class from turnwise.learning.signals.makers.SignalMaker",
)
SIGNALS.register(
    "critic", "turnwise.learning.signals.value_head:CriticMaker", "values of every sampled token"
)

OF_EPISODES = {Requirement.TURN_REWARDS, Requirement.STATES, Requirement.RESTORABLE}
MEASURED = tuple(need for need in Requirement if need not in OF_EPISODES | GIVEN_BY_ROLLOUTS)
"""The needs that are signals, in the order in which they are measured."""


def signals_needed(algorithm: Algorithm) -> list[Requirement]:
    """The signals that an algorithm needs."""
    return [need for need in MEASURED if need in algorithm.needs]


def check_makers(algorithm: Algorithm) -> None:
    """Raise MissingExtraError for a signal of a wing that is not installed; imports none."""
    for need in signals_needed(algorithm):
        SIGNALS.check(need)
