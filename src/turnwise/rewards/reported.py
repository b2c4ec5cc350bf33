"""The environment's own rewards as parts, so that a recipe can add to them."""

from turnwise.rewards.parts import Scope, reward_part
from turnwise.types import Trajectory


@reward_part("environment")
def environment(trajectory: Trajectory) -> float:
    """The environment's own reward of the outcome."""
    assert trajectory.verdict is not None  # it is judged
    return trajectory.verdict.reward


@reward_part("steps", scope=Scope.TURNS)
def steps(trajectory: Trajectory) -> list[float]:
    """The environment's own rewards of the turns, 0 for a turn that has none."""
    rewards = trajectory.turn_rewards
    return [0.0] * len(trajectory.turns) if rewards is None else rewards.tolist()
