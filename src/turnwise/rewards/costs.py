"""Multipliers of costs: one rises while its cost's mean is above the limit, and falls below it.

    multiplier <- clip(multiplier + learning_rate * (mean cost - limit), 0, highest)

The reward of an episode is less by multiplier times cost, so that together with the policy's update
this is dual ascent on the constrained problem "as much reward as possible, at most so much cost".
Source: Safe RLHF (arXiv 2310.12773), section 3.3, there with a learned cost and the logarithm of
the multiplier.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean

from turnwise.rewards.composition import Reward
from turnwise.types import Group


class CostMultipliers:
    """The multipliers of a reward's costs during a run. Example: CostMultipliers(reward).values"""

    def __init__(self, reward: Reward | None) -> None:
        self._costs = {
            term.name: term.cost for term in (reward.costs if reward else ()) if term.cost
        }
        self.values = {name: cost.multiplier for name, cost in self._costs.items()}
        """Multipliers by the names of costs, 0 or more."""

    def measure(self, groups: Sequence[Group]) -> None:
        """Change the multipliers by the mean costs of a step's graded episodes."""
        verdicts = [m.verdict for group in groups for m in group.graded if m.verdict is not None]
        for name, cost in self._costs.items():
            if verdicts:
                excess = fmean(verdict.parts[name] for verdict in verdicts) - cost.limit
                value = self.values[name] + cost.learning_rate * excess
                self.values[name] = min(max(value, 0.0), cost.highest)

    def metrics(self) -> dict[str, float]:
        return {f"reward/multipliers/{name}": value for name, value in self.values.items()}

    def load_state(self, state: Mapping[str, float]) -> None:
        """Go on with the `values` of a checkpoint."""
        self.values = dict(state)
