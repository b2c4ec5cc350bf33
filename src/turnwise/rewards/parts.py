"""The parts of a reward by name: numbers of a judged episode, each with its range.

    @reward_part("brevity", 0, 1)
    def brevity(trajectory: Trajectory, words: Count = 100) -> float:
        \"\"\"1 for nothing written, falling to 0 at so many `words`.\"\"\"
        return max(0.0, 1 - len(trajectory.written.split()) / words)

A part is declared beside its function, which gets a judged trajectory, or a group of them, and its
options by name. What an environment's verifier reports are parts too (`EnvironmentSpec.parts`): a
recipe names both in the same way.
"""

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from importlib import import_module
from typing import Any, TypeVar

from turnwise.errors import ConfigError
from turnwise.registry import Registry
from turnwise.wings import wings


class Scope(StrEnum):
    """The subject of a part, and so the shape of its numbers."""

    TRAJECTORY = "trajectory"
    """A number of an episode: `function(trajectory) -> float`."""
    TURNS = "turns"
    """A number of each of its turns: `function(trajectory) -> Sequence[float]`."""
    GROUP = "group"
    """A number of each graded member of a group: `function(group) -> Sequence[float | None]`, None
    for a member that has none and is ungraded then. It is not measured in evaluations."""


@dataclass(frozen=True)
class RewardPart:
    """A number that a recipe can make a part of the reward.

    Example: RewardPart(0, 1, "share of the hidden calls that passed")
    """

    low: float = -math.inf
    high: float = math.inf
    """Range of the number, or of each turn's; infinite where it is not known. A number outside
    leaves the episode ungraded."""
    description: str = ""
    scope: Scope = Scope.TRAJECTORY
    total: tuple[float, float] | None = None
    """Range of the sum over an episode's turns, where it is narrower than that of so many turns."""
    total_of: Callable[..., tuple[float, float]] | None = None
    """That range as a function of the part's options, where it depends on them."""
    function: Callable[..., Any] | None = None
    """The function; None for a number that the environment's verifier reports."""
    reads: str = ""
    """The option that names a number of the same scope which the environment has to report."""

    def __post_init__(self) -> None:
        # Not `low >= high`, which NaN would pass.
        if not self.low < self.high:
            raise ConfigError(
                f"the range of a part is {self.low:g} to {self.high:g}: the second number has to "
                "be the higher one"
            )

    @property
    def options(self) -> dict[str, inspect.Parameter]:
        """The options of its function, by name."""
        if self.function is None:
            return {}
        parameters = inspect.signature(self.function, eval_str=True).parameters
        return dict(list(parameters.items())[1:])

    def bounds(self, turns: int) -> tuple[float, float]:
        """The range of its sum over an episode of at most so many turns."""
        if self.scope != Scope.TURNS:
            return self.low, self.high
        # 0 is among the sums: an episode may end before its first turn.
        low, high = min(0.0, turns * self.low), max(0.0, turns * self.high)
        return (max(low, self.total[0]), min(high, self.total[1])) if self.total else (low, high)


Function = TypeVar("Function", bound=Callable[..., Any])


def reward_part(
    name: str,
    low: float = -math.inf,
    high: float = math.inf,
    scope: Scope = Scope.TRAJECTORY,
    total: tuple[float, float] | None = None,
    total_of: Callable[..., tuple[float, float]] | None = None,
    reads: str = "",
) -> Callable[[Function], Function]:
    """Declare the decorated function a part of rewards, described by its docstring's first line.
    `name` is for built-in parts; one's own are named by file or module."""

    def declare(function: Function) -> Function:
        line = (inspect.getdoc(function) or "").partition("\n")[0]
        part = RewardPart(low, high, line, scope, total, total_of, function, reads)
        setattr(function, _DECLARED, (name, part))
        return function

    return declare


class RewardPartRegistry(Registry[RewardPart]):
    """The parts that belong to no environment: those that modules and wings declare."""

    def __init__(self, *modules: str) -> None:
        super().__init__("reward", callable, "give a function of a trajectory")
        self._modules = modules

    def names(self) -> list[str]:
        """The built-in names, in the order of their declarations."""
        return list(self._declared)

    def descriptions(self) -> dict[str, str]:
        """See Registry."""
        return super().descriptions() | {k: part.description for k, part in self._declared.items()}

    def get(self, name: str) -> RewardPart:
        """See Registry. An undeclared function is a part of a trajectory, without a range."""
        return self._declared[name] if name in self._declared else super().get(name)

    def _accepted(self, target: str, found: Any) -> RewardPart:
        function: Any = super()._accepted(target, found)
        declared: tuple[str, RewardPart] | None = getattr(function, _DECLARED, None)
        return declared[1] if declared is not None else RewardPart(function=function)

    @cached_property
    def _declared(self) -> dict[str, RewardPart]:
        own = [f"turnwise.rewards.{name}" for name in self._modules]
        modules = [vars(import_module(name)) for name in (*own, *wings().reward_parts())]
        return dict(
            getattr(value, _DECLARED)
            for module in modules
            for value in module.values()
            if inspect.isfunction(value) and hasattr(value, _DECLARED)
        )


_DECLARED = "turnwise_reward_part"

REWARD_PARTS = RewardPartRegistry("measuring")
"""All parts that belong to no environment. A module is imported when a part is first asked for."""

CERTAINTY: Mapping[str, RewardPart] = {
    "entropy": RewardPart(0, 1, "mean entropy of the policy at its tokens, of the highest"),
    "self_certainty": RewardPart(0, math.inf, "mean divergence of uniform from the policy, nats"),
}
"""The parts that the policy's certainty is, by their ranges: known before it is loaded. They are
measured in `learning/certainty.py`."""
