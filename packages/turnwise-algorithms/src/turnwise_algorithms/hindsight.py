"""Credit in hindsight: how much likelier a turn is once it is known how the episode ended.

pi is the probability of a turn's sampled tokens when they were sampled, h that given the outcome.
Each function gives float64[K_i] for each episode. Pure float64 numpy.
"""

from collections.abc import Sequence
from typing import Annotated

import numpy as np

from turnwise.algorithms.estimators import EstimatorInput, Floats, of_turns
from turnwise.algorithms.outcome_advantages import grpo
from turnwise.algorithms.parts import Requirement, Trait, part
from turnwise.algorithms.turns import TurnNumbers, turn_returns
from turnwise.conflicts import Need
from turnwise.ranges import NonNegative, Positive, Range, Share
from turnwise_algorithms.estimators import needed


def criticality(episode: EstimatorInput) -> Floats:
    """log h(a_k) - log pi(a_k) of each turn, float64[K]: above 0 where the outcome speaks for it.
    Raises ValueError without log-probabilities."""
    return _by_turn(episode, episode.hindsight_logprobs) - _by_turn(episode, episode.logprobs)


@part(
    "estimator",
    "hca",
    of=of_turns,
    needs=[Requirement.HINDSIGHT],
    conditions=[Need.WORDS],
    traits=[Trait.UNGROUPED],
)
def hca(
    group: Sequence[EstimatorInput],
    discount: Share = 1.0,
    ratio_cap: Annotated[float, Range(1)] = 5.0,
) -> TurnNumbers:
    """A_k = (1 - min(pi(a_k) / h(a_k), cap)) G_k, G_k the return from turn k on.

    With the true h and no cap its mean over G_k is the advantage of turn k, provided that every
    return can follow every action. The cap is our definition: a ratio of products has no bound.
    Source: Hindsight Credit Assignment (Harutyunyan et al. 2019), return-conditioned. Raises
    ValueError without log-probabilities.
    """
    bound = np.log(ratio_cap)
    return [
        # The cap before exp: a turn is a product over its tokens, and would overflow.
        (1 - np.exp(np.minimum(-criticality(episode), bound))) * turn_returns(episode, discount)
        for episode in group
    ]


@part(
    "estimator",
    "hcapo",
    of=of_turns,
    needs=[Requirement.HINDSIGHT],
    conditions=[Need.WORDS],
    traits=[Trait.NO_PENALTY],
)
def hcapo(
    group: Sequence[EstimatorInput],
    discount: Share = 1.0,
    hindsight_weight: NonNegative = 1.0,
    hindsight_temperature: Positive = 1.0,
    ratio_low: Share = 0.8,
    ratio_high: Annotated[float, Range(1)] = 1.2,
) -> TurnNumbers:
    """A_k = z(R) + weight z(Q_k), Q_k = clip(p_k / mean p, low, high) discount^(K-1-k) R, p_k =
    exp(mean log h over the turn's tokens / temperature): z(Q) over all turns of the group, mean p
    over the episode's.

    Source: HCAPO (arXiv 2603.08754); the defaults of weight, temperature and bounds are our
    definition. Raises ValueError without log-probabilities.
    """
    totals = np.array([episode.total_reward for episode in group], np.float64)
    refined = []
    for episode, total in zip(group, totals, strict=True):
        # By token, or long turns would all be improbable.
        lengths = np.maximum(_by_turn(episode, np.ones(len(episode.mask))), 1)
        means = _by_turn(episode, episode.hindsight_logprobs) / lengths
        likely = np.exp(means / hindsight_temperature)
        ratios = np.clip(likely / likely.mean() if len(likely) else likely, ratio_low, ratio_high)
        refined.append(ratios * discount ** np.arange(episode.turns)[::-1] * total)
    scores = grpo(np.concatenate([np.zeros(0), *refined]))
    turns = np.cumsum([episode.turns for episode in group])[:-1]
    return [
        whole + hindsight_weight * row
        for whole, row in zip(grpo(totals), np.split(scores, turns), strict=False)
    ]


def _by_turn(episode: EstimatorInput, numbers: Floats | None) -> Floats:
    known = needed(numbers, "log-probabilities in hindsight")
    turn, values = episode.turn[episode.mask], known[episode.mask]
    sums = np.zeros(episode.turns)
    np.add.at(sums, turn, values)
    return sums
