"""Multipliers of costs: dual ascent by hand, within their bounds."""

import math

import pytest

from tests.graded import graded
from turnwise.config import RewardConfig
from turnwise.errors import ConfigError
from turnwise.rewards.composition import Reward, make_reward
from turnwise.rewards.costs import CostMultipliers
from turnwise.rewards.parts import RewardPart, Scope
from turnwise.types import Group, Verdict

REPORTED = {
    "held_back": RewardPart(0, 1),
    "form": RewardPart(-1, 1),
    "each": RewardPart(0, 1, scope=Scope.TURNS),
    "calls": RewardPart(0, 2),
    "seconds": RewardPart(0, math.inf),
}


def reward(**costs: dict[str, float]) -> Reward:
    return make_reward(RewardConfig.model_validate({"costs": costs, "outcome": 3}), REPORTED, 4)


def group(*costs: float) -> Group:
    judged = [Verdict(0.0, False, {"held_back": cost}) for cost in costs]
    members = [graded(False, episode=n, verdict=verdict) for n, verdict in enumerate(judged)]
    return Group("g", (*members, graded(None, episode=9)))


def test_a_multiplier_rises_above_the_limit_and_falls_below_it() -> None:
    made = reward(held_back={"limit": 0.25, "learning_rate": 2.0, "multiplier": 0.5, "highest": 2})
    multipliers = CostMultipliers(made)
    found = []
    for costs in ((1.0, 0.5), (1.0, 1.0), (0.0, 0.0), (0.0, 0.0), (0.0, 0.0), (0.0, 0.0), (0.0,)):
        found.append(multipliers.values["held_back"])
        multipliers.measure([group(*costs)])
    assert found == pytest.approx([0.5, 1.5, 2.0, 1.5, 1.0, 0.5, 0.0])
    multipliers.measure([group()])  # nobody has a grade
    assert multipliers.values == {"held_back": 0.0}
    multipliers.load_state({"held_back": 0.75})
    assert multipliers.metrics() == {"reward/multipliers/held_back": 0.75}
    assert made.weights(0, multipliers.values) == {"held_back": -0.75}
    assert made.weights(0) == {"held_back": 0.0}


def test_a_cost_takes_off_at_most_its_highest_multiplier_times_its_largest_number() -> None:
    made = reward(calls={"limit": 0.1, "highest": 1.25})
    assert made.bounds(True, 0) == (0.5, 3.0)
    assert made.bounds(False, 0) == (-2.5, 0.0)


@pytest.mark.parametrize(
    ("costs", "message"),
    [
        ({"form": {"limit": 0.1}}, "reward.costs.form: a cost is 0 or more, and this one may be"),
        ({"each": {"limit": 0.1}}, "a cost is a number of an episode, not of turns"),
        ({"held": {"limit": 0.1}}, "did you mean 'held_back'.*reward.costs.held.range="),
        ({"held_back": {"limit": 0.1, "highest": 3}}, "parts can outvote success by 0"),
        ({"calls": {"limit": 0.1, "highest": 1.5}}, "parts can outvote success by 0"),
        ({"seconds": {"limit": 0.1}}, "nobody knows the range of reward.costs.seconds"),
    ],
)
def test_mistakes_are_a_line(costs: dict[str, dict[str, float]], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        reward(**costs)
