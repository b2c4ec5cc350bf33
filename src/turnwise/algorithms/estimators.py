"""The output of an estimator, and ways to make one from a simpler function of a group or
episode."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from turnwise.algorithms.estimator_input import EstimatorInput, Floats, Groups


class Credit(NamedTuple):
    """float64[n] each."""

    advantages: Floats
    """0 where nothing was sampled."""
    targets: Floats | None = None
    """Targets of the critic: advantage + value, before whitening; NaN where it is not trained."""


Estimator = Callable[..., list[list[Credit]]]
"""(groups, **numbers) -> for each group, for each episode. Raises ValueError where data lack."""


def of_rewards(function: Callable[..., Floats]) -> Estimator:
    """One number per trajectory, from the rewards of its group, on each of its tokens."""

    def estimate(groups: Groups, **numbers: Any) -> list[list[Credit]]:
        return [spread(group, function(totals(group), **numbers)) for group in groups]

    return estimate


def of_group(function: Callable[..., Floats]) -> Estimator:
    """One number per trajectory, from the episodes of its group, on each of its tokens."""

    def estimate(groups: Groups, **numbers: Any) -> list[list[Credit]]:
        return [spread(group, function(group, **numbers)) for group in groups]

    return estimate


def of_turns(function: Callable[..., list[Floats]]) -> Estimator:
    """One number per turn, from the episodes of its group, on each of the turn's tokens."""

    def estimate(groups: Groups, **numbers: Any) -> list[list[Credit]]:
        return [
            [
                Credit(episode.on_tokens(row))
                for episode, row in zip(group, function(group, **numbers), strict=True)
            ]
            for group in groups
        ]

    return estimate


def of_tokens(function: Callable[..., list[Floats]]) -> Estimator:
    """One number per token, from the episodes of its group."""

    def estimate(groups: Groups, **numbers: Any) -> list[list[Credit]]:
        return [[Credit(row) for row in function(group, **numbers)] for group in groups]

    return estimate


def of_episode(function: Callable[..., Floats]) -> Estimator:
    """One number per token, from one episode alone."""

    def estimate(groups: Groups, **numbers: Any) -> list[list[Credit]]:
        return [[Credit(function(episode, **numbers)) for episode in group] for group in groups]

    return estimate


def of_values(function: Callable[..., Credit]) -> Estimator:
    """One number per token and the critic's targets, from an episode's rewards and values."""

    def estimate(groups: Groups, **numbers: Any) -> list[list[Credit]]:
        return [[function(episode, **numbers) for episode in group] for group in groups]

    return estimate


def spread(group: Sequence[EstimatorInput], numbers: Floats) -> list[Credit]:
    """Each episode's number on its sampled tokens."""
    return [
        Credit(np.where(episode.mask, number, 0.0))
        for episode, number in zip(group, numbers, strict=True)
    ]


def totals(group: Sequence[EstimatorInput]) -> Floats:
    """float64[n]: outcome and all other rewards of each episode."""
    return np.array([episode.total_reward for episode in group], np.float64)


def mean_reward(rewards: Sequence[float]) -> float:
    """The mean, exact where all are equal; NaN of none."""
    if not len(rewards):
        return float("nan")
    return float(rewards[0] if min(rewards) == max(rewards) else np.mean(rewards))
