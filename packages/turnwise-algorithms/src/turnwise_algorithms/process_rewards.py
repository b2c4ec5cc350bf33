"""Credit from rewards for the process, token by token, beside the outcome. Pure float64 numpy."""

from collections.abc import Sequence

import numpy as np

from turnwise.algorithms.estimators import EstimatorInput, Floats, of_tokens
from turnwise.algorithms.outcome_advantages import rloo
from turnwise.algorithms.parts import Requirement, Trait, part
from turnwise.ranges import Share


@part(
    "estimator",
    "process_rloo",
    of=of_tokens,
    needs=[Requirement.PROCESS_REWARDS],
    traits=[Trait.NO_PENALTY],
)
def process_rloo(group: Sequence[EstimatorInput], discount: Share = 1.0) -> list[Floats]:
    """A_t = sum_{s>=t} discount^(s-t) (r_s - b) + O - mean of the others' O, over sampled tokens; b
    is the mean over the others of the mean of their tokens' rewards: float64[n] for each episode.

    O is the outcome with any rewards per turn. A group of one has 0. Source: PRIME (arXiv
    2502.01456), before its whitening. Raises ValueError without rewards per token.
    """
    rewards = [_process_rewards(episode) for episode in group]
    means = np.array([row.mean() for row in rewards if len(row)])
    outcomes = rloo(np.array([_outcome(episode) for episode in group], np.float64))
    advantages = []
    for episode, row, outcome in zip(group, rewards, outcomes, strict=True):
        spread = np.zeros(len(episode.mask))
        if len(row):
            others = (means.sum() - row.mean()) / max(len(means) - 1, 1)
            returns = row - others if len(means) > 1 else np.zeros(len(row))
            for step in range(len(returns) - 2, -1, -1):
                returns[step] += discount * returns[step + 1]
            spread[episode.mask] = returns + outcome
        advantages.append(spread)
    return advantages


def _outcome(episode: EstimatorInput) -> float:
    return episode.shaped_reward + (
        0.0 if episode.turn_rewards is None else episode.turn_rewards.sum()
    )


def _process_rewards(episode: EstimatorInput) -> Floats:
    if episode.token_rewards is None:
        raise ValueError("this estimator needs a reward per token, and there is none")
    return episode.token_rewards[episode.mask]
