"""Credit from how much likelier each turn made the right answer. Pure float64 numpy."""

from collections.abc import Sequence
from typing import Annotated

import numpy as np

from turnwise.algorithms.estimators import EstimatorInput, Floats, of_turns
from turnwise.algorithms.outcome_advantages import grpo
from turnwise.algorithms.parts import Requirement, Trait, part
from turnwise.algorithms.turns import discounted
from turnwise.conflicts import Need
from turnwise.ranges import Range, Share


@part(
    "estimator",
    "information_gain",
    of=of_turns,
    needs=[Requirement.INFORMATION_GAIN],
    conditions=[Need.WORDS],
    traits=[Trait.NO_PENALTY],
)
def information_gain(
    group: Sequence[EstimatorInput],
    discount: Share = 1.0,
    separate: Annotated[int, Range(0, 1)] = 0,
) -> list[Floats]:
    """A_k = sum_{l>=k} discount^(l-k) z(r_l), r_l the gain p(answer | h_{l+1}) - p(answer | h_l) of
    turn l, and that of the last turn the outcome with all that the environment gave.

    `separate` z-scores gains and outcomes each among themselves over the group, as the authors'
    script does; else together, as in the paper. A group of one has 0. Source: IGPO (arXiv
    2510.14967). Raises ValueError where no gain was measured.
    """
    gains = [_gains(episode) for episode in group]
    outcome = np.array([episode.total_reward for episode in group], np.float64)
    flat = np.concatenate([np.zeros(0), *gains])
    if len(group) < 2:
        scores = np.zeros(len(flat) + len(outcome))
    elif separate:
        scores = np.concatenate([grpo(flat), grpo(outcome)])
    else:
        scores = grpo(np.concatenate([flat, outcome]))
    advantages, place = [], 0
    for index, (episode, row) in enumerate(zip(group, gains, strict=True)):
        own = scores[place : place + len(row)]
        place += len(row)
        numbers = np.append(own, scores[len(flat) + index])[: episode.turns]
        advantages.append(discounted(numbers, discount))
    return advantages


def _gains(episode: EstimatorInput) -> Floats:
    if episode.information_gains is None:
        raise ValueError("this estimator needs information gains, and there are none")
    return episode.information_gains
