"""Penalties on a trajectory's reward before trajectories are compared with each other.

Evaluations, metrics of rewards and filters on groups never see them. Pure float64 numpy.
"""

from collections.abc import Callable
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from turnwise.algorithms.estimator_input import Floats
from turnwise.algorithms.parts import part
from turnwise.ranges import NonNegative, Range

RewardShaping = Callable[..., Floats]
"""(sampled tokens int64[n], budget, **numbers) -> penalties float64[n], 0 or more, taken off
rewards."""


@part("reward_shaping", "none", "the task's reward")
def unshaped(lengths: NDArray[np.int64], budget: int) -> Floats:
    """0: the rewards are the task's."""
    return np.zeros(len(lengths))


@part(
    "reward_shaping",
    "overlong",
    "less a penalty in the last share of the token budget (arXiv 2503.14476)",
)
def overlong(
    lengths: NDArray[np.int64],
    budget: int,
    overlong_band: Annotated[float, Range(1e-6, 1)] = 0.2,
    overlong_penalty: NonNegative = 1.0,
) -> Floats:
    """0 up to budget - band, then growing with each token to `overlong_penalty` at the budget; the
    band is that share of the budget.

    Source: DAPO (arXiv 2503.14476), equation 13, with a band of a fifth of 20,480 tokens, and 1.
    """
    band = overlong_band * budget
    share: Floats = np.clip((lengths - (budget - band)) / band, 0.0, 1.0)
    return overlong_penalty * share
