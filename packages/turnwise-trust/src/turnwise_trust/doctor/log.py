"""A log in one form, of any framework: what readers yield, and what rules are asked about.

Not here: how events become a log (`gathering.py`).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from turnwise.storage.audits import Finding


@dataclass(frozen=True)
class Measured:
    """Numbers of one step, under the names that the log gives them."""

    step: int
    values: Mapping[str, float]


@dataclass(frozen=True)
class Rollout:
    """An episode or a completion, as far as the log tells of it; None is unknown."""

    step: int | None = None
    group: str | None = None
    """The name of those that are compared with each other: a task's, or a prompt's."""
    reward: float | None = None
    """None for one that was not graded."""
    parts: Mapping[str, float] = field(default_factory=dict)
    text: str = ""
    length: int | None = None
    """Sampled tokens."""
    success: bool | None = None
    truncated: bool | None = None
    malformed: bool | None = None
    tool_calls: int | None = None
    tool_errors: int | None = None
    counted: bool = True
    """False for an example alone, where the log's own numbers count it already."""


@dataclass(frozen=True)
class Remark:
    """A sentence about what could not be read."""

    text: str


@dataclass(frozen=True)
class Reason:
    """Why a step taught nothing, as the log itself says, and what to do."""

    step: int
    text: str


@dataclass(frozen=True)
class Setting:
    """A number of the recipe that the run was made with."""

    name: str
    value: float


@dataclass(frozen=True)
class Alarm:
    """An alarm that rang while the run trained."""

    finding: Finding


Event = Measured | Rollout | Remark | Reason | Setting | Alarm


class Series(NamedTuple):
    """A number over the steps in which it was measured."""

    steps: NDArray[np.int64]
    values: NDArray[np.float64]


class Broken(NamedTuple):
    """Steps in which a number was not finite: how many, and the first."""

    steps: int
    first: int


@dataclass(frozen=True)
class Log:
    """A log as rules see it. Example: `log.values("reward/mean").mean()`."""

    source: str
    """The format, in words."""
    framework: str
    """The one that wrote it, for remedies in its words; "" where that is not known."""
    series: Mapping[str, Series]
    """Numbers by turnwise's names: docs/reference/metrics.md, and those of `names.py`."""
    broken: Mapping[str, Broken]
    rollouts: int
    groups: int
    """Groups of episodes that the log lets compare; 0 where it has numbers of steps alone."""
    examples: Mapping[str, Rollout]
    """The last one of each kind: latest, truncated, malformed, ungraded, repeating, best."""
    reasons: Mapping[str, tuple[int, ...]]
    """Steps that taught nothing, by what the log says why."""
    settings: Mapping[str, float]
    remarks: tuple[str, ...]
    alarms: tuple[Finding, ...] = ()

    def __contains__(self, name: object) -> bool:
        return name in self.series

    def values(self, name: str) -> NDArray[np.float64]:
        """Values in the order of steps, [steps]; none of a number that the log does not hold."""
        return self.series[name].values if name in self.series else np.empty(0)

    def mean(self, name: str) -> float:
        """The mean over all steps; NaN without any."""
        return float(self.values(name).mean()) if name in self.series else math.nan

    @property
    def steps(self) -> int:
        """The most steps for which any number is known."""
        return max((len(one.values) for one in self.series.values()), default=0)
