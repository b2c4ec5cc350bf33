"""Advantages of judged trajectories and of their measurements: the estimator's input and output, by
trajectory.

Next: `algorithms/algorithm.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress

import numpy as np
from numpy.typing import NDArray

from turnwise.algorithms.advantages import whiten
from turnwise.algorithms.algorithm import Algorithm
from turnwise.algorithms.estimators import Credit, EstimatorInput, mean_reward
from turnwise.learning.selection import selected
from turnwise.learning.signals.base import Signals
from turnwise.learning.signals.reward_terms import METRIC
from turnwise.types import Group, Trajectory, TrajectoryId


@dataclass(frozen=True)
class Credits:
    """Advantages and value targets of every graded trajectory of a step, for its update.

    Example: `estimate(groups, measure(signals, groups), algorithm).advantages[trajectory.id]`
    """

    advantages: Mapping[TrajectoryId, NDArray[np.float32]]
    """float32[n]; 0 where nothing was sampled."""
    trained: frozenset[TrajectoryId]
    """The graded trajectories that the algorithm's filters keep: all that are in the loss."""
    value_targets: Mapping[TrajectoryId, NDArray[np.float32]] = field(default_factory=dict)
    """float32[n], what the critic is trained towards, else NaN; empty without a critic."""
    kl_reference: float | None = None
    """Mean log(sampling policy / reference) over sampled tokens, with the KL term a reward."""

    def merged_with(self, others: "Credits") -> "Credits":
        return replace(
            self,
            advantages={**self.advantages, **others.advantages},
            trained=self.trained | others.trained,
            value_targets={**self.value_targets, **others.value_targets},
        )


def estimate(groups: Sequence[Group], signals: Signals, algorithm: Algorithm) -> Credits:
    """The algorithm's estimate for every graded trajectory; whitening is by and of those alone that
    its filters keep. Raises ValueError for a NaN or infinite reward, naming the trajectory."""
    trained = selected(groups, algorithm)
    batch = [estimator_inputs(group, signals) for group in groups]
    credits = algorithm.call("estimator", batch)
    if algorithm.whitening:
        credits = _whitened(credits, batch, groups, trained)
    estimated = [
        (member.id, credit)
        for group, row in zip(groups, credits, strict=True)
        for member, credit in zip(group.graded, row, strict=True)
    ]
    return Credits(
        {identity: credit.advantages.astype(np.float32) for identity, credit in estimated},
        trained,
        {
            identity: credit.targets.astype(np.float32)
            for identity, credit in estimated
            if credit.targets is not None
        },
        signals.metrics.get(METRIC),
    )


def estimator_inputs(group: Group, signals: Signals) -> list[EstimatorInput]:
    """The estimators' view of a group's graded members; parents become indices among these."""
    places = {member.episode: index for index, member in enumerate(group.graded)}
    return [
        _input(member, group, signals, None if member.parent is None else places[member.parent])
        for member in group.graded
    ]


def _input(
    member: Trajectory, group: Group, signals: Signals, parent: int | None
) -> EstimatorInput:
    measured = signals.of(member)
    assert member.verdict is not None  # it is graded
    try:
        return EstimatorInput(
            shaped_reward=member.verdict.reward - (measured.penalty or 0.0),
            turn=member.tokens.turn,
            mask=member.tokens.mask,
            turn_rewards=member.turn_rewards,
            token_rewards=measured.token_rewards,
            # A token that was sampled first in its context has no value, and is not trained.
            values=None if measured.values is None else np.nan_to_num(measured.values),
            states=member.states,
            parts=member.verdict.parts,
            baseline=_baseline(group),
            parent=parent,
            first_turn=member.first_turn,
            logprobs=_float64(member.tokens.logprob),
            teacher_logprobs=_float64(measured.teacher_logprobs),
            hindsight_logprobs=_float64(measured.hindsight_logprobs),
            score_norms=_float64(measured.score_norms),
            information_gains=measured.information_gains,
            turn_values=_turn_values(member, group),
        )
    except ValueError as error:
        raise ValueError(f"{member.id}: {error}") from None


def _baseline(group: Group) -> float | None:
    """The greedy episode's reward beside the group: NaN without a grade, None without one."""
    # Those with a parent go on from before a member's turn: `_turn_values`.
    rewards = [episode.reward for episode in group.baseline_rollouts if episode.parent is None]
    if not rewards:
        return None
    return float("nan") if rewards[0] is None else rewards[0]


def _turn_values(member: Trajectory, group: Group) -> NDArray[np.float64] | None:
    """float64[turns+1], mean rewards of episodes played on from before each turn, then the own."""
    children = [episode for episode in group.baseline_rollouts if episode.parent == member.episode]
    if not children:
        return None
    rewards: list[list[float]] = [[] for _ in member.snapshots]
    for child in children:
        if child.reward is not None:
            rewards[child.first_turn - member.first_turn].append(child.reward)
    return np.array([*map(mean_reward, rewards), member.reward], np.float64)


def _whitened(
    credits: list[list[Credit]],
    batch: Sequence[Sequence[EstimatorInput]],
    groups: Sequence[Group],
    trained: frozenset[TrajectoryId],
) -> list[list[Credit]]:
    wanted = [[member.id in trained for member in group.graded] for group in groups]
    chosen = whiten(
        [list(compress(row, keep)) for row, keep in zip(credits, wanted, strict=True)],
        [list(compress(row, keep)) for row, keep in zip(batch, wanted, strict=True)],
    )
    remaining = iter(credit for row in chosen for credit in row)
    return [
        [next(remaining) if keep else credit for credit, keep in zip(row, own, strict=True)]
        for row, own in zip(credits, wanted, strict=True)
    ]


def _float64(numbers: NDArray[np.float32] | None) -> NDArray[np.float64] | None:
    return None if numbers is None else numbers.astype(np.float64)
