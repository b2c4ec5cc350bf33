"""Measurements of judged trajectories: plain data beside them, by the names of trajectories.

A trajectory is never written to, and an array has one owner.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from turnwise.types import Group, Trajectory, TrajectoryId


@dataclass(frozen=True)
class SignalArrays:
    """Measurements of one trajectory of n tokens and K turns; None where nothing was measured."""

    penalty: float | None = None
    """Taken off the outcome's reward for the estimator alone, 0 or more."""
    token_rewards: NDArray[np.float64] | None = None
    """float64[n], added to the environment's rewards, as a KL penalty; 0 if not sampled."""
    values: NDArray[np.float32] | None = None
    """float32[n], the critic's value of what stands before each sampled token; else NaN."""
    teacher_logprobs: NDArray[np.float32] | None = None
    """float32[n], of each sampled token under a teacher; NaN where it scored none."""
    hindsight_logprobs: NDArray[np.float32] | None = None
    """float32[n], of each sampled token with the reward in its context; else NaN."""
    score_norms: NDArray[np.float32] | None = None
    """float32[n], squared norm of log pi's gradient by the logits; NaN if not sampled."""
    information_gains: NDArray[np.float64] | None = None
    """float64[K-1], by how much each turn but the last raised the right answer's probability."""


NOTHING = SignalArrays()


@dataclass(frozen=True)
class Signals:
    """Measurements of a step's trajectories, and numbers for its log.

    Example: Signals({trajectory.id: SignalArrays(penalty=0.5)}, {"reward/penalty": 0.5})
    """

    by_trajectory: Mapping[TrajectoryId, SignalArrays] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)

    def of(self, member: Trajectory) -> SignalArrays:
        return self.by_trajectory.get(member.id, NOTHING)

    def merged_with(self, others: "Signals") -> "Signals":
        """Join measurements of other trajectories; the numbers for the log stay as here."""
        return replace(self, by_trajectory={**self.by_trajectory, **others.by_trajectory})


class Signal(Protocol):
    """Something that can be measured of judged trajectories without changing them."""

    def measure(self, groups: Sequence[Group]) -> Signals: ...


def measure(signals: Iterable[Signal], groups: Sequence[Group]) -> Signals:
    return merged([signal.measure(groups) for signal in signals])


def merged(parts: Sequence[Signals]) -> Signals:
    """All measurements; ValueError where two have one array of a trajectory, or one metric."""
    found: dict[TrajectoryId, dict[str, Any]] = {}
    metrics: dict[str, float] = {}
    for part in parts:
        for identity, arrays in part.by_trajectory.items():
            own = found.setdefault(identity, {})
            for name, value in _measured(arrays).items():
                if name in own:
                    raise ValueError(f"two signals have {name} of {identity}")
                own[name] = value
        for name, number in part.metrics.items():
            if name in metrics:
                raise ValueError(f"two signals have the metric {name}")
            metrics[name] = number
    return Signals({identity: SignalArrays(**own) for identity, own in found.items()}, metrics)


def by_trajectory(
    members: Sequence[Trajectory], arrays: Iterable[SignalArrays]
) -> dict[TrajectoryId, SignalArrays]:
    """Measurements by the names of trajectories. Raises ValueError for two of one name."""
    found: dict[TrajectoryId, SignalArrays] = {}
    for member, own in zip(members, arrays, strict=True):
        if member.id in found:
            raise ValueError(f"there are two trajectories {member.id}")
        found[member.id] = own
    return found


def graded(groups: Sequence[Group]) -> list[Trajectory]:
    """The graded trajectories of all groups, in order."""
    return [member for group in groups for member in group.graded]


def _measured(arrays: SignalArrays) -> dict[str, Any]:
    values = {one.name: getattr(arrays, one.name) for one in fields(arrays)}
    return {name: value for name, value in values.items() if value is not None}


NUMBERS = np.dtype([("logprob", np.float32), ("entropy", np.float32), ("loss_weight", np.float32)])
"""A trained token's log-probability and entropy in the first pass, at the sampling temperature and
in nats, and the factor of its objective in its batch's loss (`TokenLosses.weights`)."""
TokenNumbers = Mapping[TrajectoryId, NDArray[np.void]]
"""NUMBERS[n] for each trajectory of n tokens; NaN where a token was not trained."""


def no_numbers(groups: Sequence[Group], trained: frozenset[TrajectoryId]) -> TokenNumbers:
    unknown = np.full(1, np.nan, np.float32).astype(NUMBERS)  # NaN in every field
    return {
        member.id: np.repeat(unknown, len(member.tokens))
        for group in groups
        for member in group.graded
        if member.id in trained
    }


def together(parts: Sequence[TokenNumbers]) -> TokenNumbers:
    first, *others = parts
    for part in others:
        for name, row in part.items():
            np.copyto(first[name], row, where=~np.isnan(row["loss_weight"]))  # its own
    return first
