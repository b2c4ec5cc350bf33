"""A reward model as a part of the reward, by its form: known before any model is loaded."""

from collections.abc import Mapping

from turnwise.rewards.parts import RewardPart, Scope

PARTS: Mapping[str, RewardPart] = {
    "outcome": RewardPart(0, 1, "chance of success, by a reward model"),
    "process": RewardPart(
        -1, 1, "change of the chance of success, by a reward model", Scope.TURNS, (-1, 1)
    ),
    "pairs": RewardPart(0, 1, "chance of being preferred, by a reward model"),
}
