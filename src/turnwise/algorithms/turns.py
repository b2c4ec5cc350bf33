"""Credit for single turns without a critic: from one group's episodes to a number per turn.

Each function gives a list with float64[K_i] for each episode. Pure float64 numpy.
"""

from collections.abc import Sequence

import numpy as np

from turnwise.algorithms.estimators import EstimatorInput, Floats, discounted, mean_reward, of_turns
from turnwise.algorithms.parts import part
from turnwise.ranges import Share

TurnNumbers = list[Floats]


def turn_returns(episode: EstimatorInput, discount: float) -> Floats:
    """G_k = r_k + discount G_{k+1}, the outcome counted with the last turn: float64[K]."""
    return discounted(episode.rewards_by_turn(), discount)


@part(
    "estimator",
    "turn_rloo",
    "each turn's return less the others' at that turn; unbiased",
    of=of_turns,
)
def turn_rloo(group: Sequence[EstimatorInput], discount: Share = 1.0) -> TurnNumbers:
    """G_{i,k} less the mean over the others of G_{j,k}; one that ended before turn k stands for
    itself with its last turn. A group of one has no others: 0.

    The baseline is a function of the others alone, so the gradient is unbiased also where the
    policy decides when to stop. With an outcome only and no discount it is RLOO.
    """
    returns = [turn_returns(episode, discount) for episode in group]
    advantages = []
    for own, mine in enumerate(returns):
        others = [other for index, other in enumerate(returns) if index != own and len(other)]
        baseline = [
            mean_reward([other[min(turn, len(other) - 1)] for other in others] or [mine[turn]])
            for turn in range(len(mine))
        ]
        advantages.append(mine - np.array(baseline, np.float64))
    return advantages
