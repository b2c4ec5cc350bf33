"""Limits of rollouts that change over the steps of RL: the temperature, and the number of turns.

The temperature goes from one number to another in a straight line, as in Kimi K2 (arXiv 2507.20534,
section 3.2.3: high at first, to explore). The horizon begins short and grows when success has
reached a target, as in ScalingInter-RL (arXiv 2509.08755, section 4), whose phases have fixed
lengths: the rule by success is our own. Evaluations are played at the recipe's own temperature and
`max_turns`.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from turnwise.config import RolloutConfig
from turnwise.types import Group


def temperature_at(limits: RolloutConfig, step: int) -> float:
    """The temperature of a step, counted from 0."""
    schedule, first = limits.temperature_schedule, limits.temperature
    if schedule is None:
        return first
    share = (step - schedule.from_step) / (schedule.to_step - schedule.from_step)
    return first + min(max(share, 0.0), 1.0) * (schedule.temperature - first)


class RolloutSchedule:
    """The limits of each step."""

    def __init__(self, limits: RolloutConfig) -> None:
        self._limits = limits
        horizon = limits.horizon
        self._turns = limits.max_turns if horizon is None else horizon.turns
        self._successes: list[float] = []
        """Success of each step at the present horizon, or the mean of `horizon.part`."""

    def limits(self, step: int) -> RolloutConfig:
        """The limits of a step, counted from 0, at the present horizon."""
        changed = {"temperature": temperature_at(self._limits, step), "max_turns": self._turns}
        return self._limits.model_copy(update=changed)

    def measure(self, groups: Sequence[Group], turns: int) -> None:
        """Count a step's graded episodes, if played with the present number of turns; a horizon at
        which success has reached the target grows."""
        horizon, most = self._limits.horizon, self._limits.max_turns
        if turns != self._turns:
            return  # sampled ahead, before the horizon grew
        verdicts = [one.verdict for group in groups for one in group.graded if one.verdict]
        if horizon is None or self._turns == most or not verdicts:
            return
        reached = (one.parts[horizon.part] if horizon.part else one.success for one in verdicts)
        self._successes.append(fmean(reached))
        lately = self._successes[-horizon.window :]
        if len(lately) == horizon.window and fmean(lately) >= horizon.target:
            self._turns = min(self._turns + horizon.grow_by, most)
            self._successes = []

    def metrics(self, step: int, turns: int) -> dict[str, float]:
        """The temperature of a step and its horizon, `turns`, where they change."""
        found = {}
        if self._limits.temperature_schedule is not None:
            found["rollout/temperature"] = temperature_at(self._limits, step)
        if self._limits.horizon is not None:
            found["rollout/horizon"] = float(turns)
        return found

    def state(self) -> dict[str, Any]:
        return {"turns": self._turns, "successes": list(self._successes)}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self._turns, self._successes = state["turns"], list(state["successes"])
