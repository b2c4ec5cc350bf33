"""Policy and world model in one: what actions brought is predicted beside the policy's loss (PaW).

Of an update's transitions, each an action and the observation after it, those with the most
uncertain actions are learned from; a token of theirs costs 1 - p unless it is predicted well
enough already, and groups that succeed less weigh more. Source: arXiv 2606.02388, equations 4 to
11.
"""

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from turnwise.algorithms.parts import Requirement, part
from turnwise.conflicts import Need
from turnwise.ranges import Positive, Share

if TYPE_CHECKING:
    from torch import Tensor


@part(
    "extension",
    "world_model",
    needs=[Requirement.WORLD_MODEL],
    conditions=[Need.OBSERVATIONS, Need.ONE_LEARNER, Need.POLICY_LOSS],
)
def world_model(
    uncertain: Share = 0.75, confidence: Share = 0.2, best_return: Positive = 1.0
) -> None:
    """Predict observations after the share `uncertain` of the actions, up to a probability of
    `confidence`; no episode's reward is above `best_return`."""


def action_entropy(logprobs: NDArray[np.float32]) -> float:
    """The mean of -q log q over the tokens of an action, q the probability of each."""
    return float(-(np.exp(logprobs) * logprobs).mean())


def most_uncertain(entropies: NDArray[np.float64], share: float) -> NDArray[np.bool_]:
    """Choose the share of n with the highest entropies, the earlier of equals (equation 4)."""
    chosen = np.zeros(len(entropies), np.bool_)
    chosen[np.argsort(-entropies, kind="stable")[: math.ceil(share * len(entropies))]] = True
    return chosen


def group_coefficient(rewards: NDArray[np.float64], best_return: float) -> float:
    """The weight of a group: 1 - mean / best_return, and not below 0 (equation 10)."""
    return max(0.0, 1 - float(rewards.mean()) / best_return)


def clipped_error(logprob: "Tensor", confidence: float) -> "Tensor":
    """The loss of each token: 1 - p, and 0 where p is above the confidence (equations 7, 8)."""
    probability = logprob.exp()
    return (probability.detach() <= confidence) * (1 - probability)
