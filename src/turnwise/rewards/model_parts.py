"""The parts of rewards that models of a run measure, by their ranges: known before any is loaded.

Not here: the models (`learning/certainty.py`, `learning/reward_model.py`).
"""

import math
from collections.abc import Mapping

from turnwise.rewards.parts import RewardPart, Scope

CERTAINTY: Mapping[str, RewardPart] = {
    "entropy": RewardPart(0, 1, "mean entropy of the policy at its tokens, of the highest"),
    "self_certainty": RewardPart(0, math.inf, "mean divergence of uniform from the policy, nats"),
}
REWARD_MODEL: Mapping[str, RewardPart] = {
    "outcome": RewardPart(0, 1, "chance of success, by a reward model"),
    "process": RewardPart(
        -1, 1, "change of the chance of success, by a reward model", Scope.TURNS, (-1, 1)
    ),
    "pairs": RewardPart(0, 1, "chance of being preferred, by a reward model"),
}
"""The part of a reward model, by its form."""
