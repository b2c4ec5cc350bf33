"""The parts of rewards that the policy's certainty is, by their ranges: known before it is loaded.

Not here: how they are measured (`learning/certainty.py`).
"""

import math
from collections.abc import Mapping

from turnwise.rewards.parts import RewardPart

CERTAINTY: Mapping[str, RewardPart] = {
    "entropy": RewardPart(0, 1, "mean entropy of the policy at its tokens, of the highest"),
    "self_certainty": RewardPart(0, math.inf, "mean divergence of uniform from the policy, nats"),
}
