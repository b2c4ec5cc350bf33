"""Estimators that look at whole batches, or at trajectories as a whole. Pure float64 numpy.

From groups of one batch to each token's advantage, 0 where nothing was sampled; with a critic also
what that is to be trained towards.
"""

from collections.abc import Mapping

import numpy as np

from turnwise.algorithms import outcome_advantages
from turnwise.algorithms.estimators import (
    Credit,
    EstimatorInput,
    Floats,
    Groups,
    discounted,
    spread,
    totals,
)
from turnwise.algorithms.parts import Trait, part
from turnwise.conflicts import Need
from turnwise.errors import ConfigError
from turnwise.ranges import Share

WHITENING_FLOOR = 1e-8
"""Added to the variance."""


def whiten(batch: list[list[Credit]], groups: Groups) -> list[list[Credit]]:
    """Advantages less their mean over all sampled tokens, over their standard deviation; 0 for
    fewer than two tokens, or equal ones. Targets are left as they are."""
    masks = [[episode.mask for episode in group] for group in groups]
    sampled = np.concatenate(
        [np.zeros(0)]
        + [
            credit.advantages[mask]
            for credits, own in zip(batch, masks, strict=True)
            for credit, mask in zip(credits, own, strict=True)
        ]
    )
    mean = float(sampled.mean()) if len(sampled) else 0.0
    scale = float(np.sqrt(sampled.var() + WHITENING_FLOOR)) if len(sampled) else 1.0
    # Not by the variance, which rounding may leave above 0 where all are equal.
    equal = len(sampled) < 2 or sampled.min() == sampled.max()
    return [
        [
            Credit(np.where(mask & (not equal), (credit.advantages - mean) / scale, 0.0), credit[1])
            for credit, mask in zip(credits, own, strict=True)
        ]
        for credits, own in zip(batch, masks, strict=True)
    ]


@part(
    "estimator",
    "none",
    "0: no policy loss, the terms beside it alone",
    traits=(Trait.UNGROUPED, Trait.NO_SHAPING, Trait.NO_PENALTY),
)
def none(groups: Groups) -> list[list[Credit]]:
    """0 everywhere."""
    return [[Credit(np.zeros(len(episode.mask))) for episode in group] for group in groups]


@part("estimator", "reinforce", "the reward itself (Williams 1992)", traits=[Trait.UNGROUPED])
def reinforce(groups: Groups) -> list[list[Credit]]:
    """The trajectory's reward itself."""
    return [spread(group, totals(group)) for group in groups]


@part(
    "estimator",
    "reinforce_baseline",
    "less the mean reward of the batch's others (Williams 1992)",
    traits=[Trait.UNGROUPED],
)
def reinforce_baseline(groups: Groups) -> list[list[Credit]]:
    """The trajectory's reward less the mean of all others of the batch, whatever their task."""
    advantages = outcome_advantages.rloo(np.concatenate([np.zeros(0), *map(totals, groups)]))
    remaining = iter(advantages)
    return [spread(group, np.array([next(remaining) for _ in group])) for group in groups]


@part(
    "estimator",
    "returns",
    "discounted return from each token on (arXiv 2501.03262)",
    traits=[Trait.UNGROUPED],
)
def returns(groups: Groups, discount: Share = 1.0) -> list[list[Credit]]:
    """A_t = the discounted return from token t on, over sampled tokens (REINFORCE++)."""
    return [[Credit(_token_returns(episode, discount)) for episode in group] for group in groups]


@part("estimator", "returns_baseline", "discounted return less the group's mean (arXiv 2501.03262)")
def returns_baseline(groups: Groups, discount: Share = 1.0) -> list[list[Credit]]:
    """The discounted return from token t on less the group's mean reward (REINFORCE++-baseline)."""
    batch = []
    for group in groups:
        mean = float(totals(group).mean()) if group else 0.0
        lessened = [_token_returns(episode, discount) - mean for episode in group]
        pairs = zip(group, lessened, strict=True)
        batch.append([Credit(np.where(episode.mask, own, 0.0)) for episode, own in pairs])
    return batch


@part("estimator", "opo", "less the length-weighted mean of the group (arXiv 2505.23585)")
def opo(groups: Groups) -> list[list[Credit]]:
    """`outcome_advantages.opo` with the sampled tokens as lengths."""
    return [
        spread(
            group,
            outcome_advantages.opo(
                totals(group), np.array([e.mask.sum() for e in group], np.float64)
            ),
        )
        for group in groups
    ]


@part("estimator", "grpo", "z-score in the group (arXiv 2402.03300)")
def grpo(groups: Groups) -> list[list[Credit]]:
    """`outcome_advantages.grpo` of the environment's reward; what the trainer adds, such as a KL
    penalty, is taken less the group's mean and not divided.

    Else a penalty would become as large as the rewards where these are all equal. RAGEN's program
    (arXiv 2504.20073) too normalises rewards before it adds the penalty.
    """
    batch = []
    for group in groups:
        added = np.array([episode.added_reward for episode in group], np.float64)
        scores = outcome_advantages.grpo(totals(group) - added) + outcome_advantages.dr_grpo(added)
        batch.append(spread(group, scores))
    return batch


@part(
    "estimator",
    "gdpo",
    "named parts of the reward z-scored in the group, their weighted sum in the batch "
    "(arXiv 2601.05242)",
    conditions=[Need.NAMED_REWARDS, Need.WHOLE_BATCH],
    traits=(Trait.NO_SHAPING, Trait.NO_PENALTY, Trait.NAMED_REWARDS),
)
def gdpo(groups: Groups, *, reward_weights: Mapping[str, float]) -> list[list[Credit]]:
    """A_i = z_batch(sum_n w_n z_group(r_n,i)): each named part of the reward z-scored in its group,
    their weighted sum over all episodes of the batch.

    Neither the reward itself nor rewards per turn are among the parts. Standard deviations have n-1
    degrees of freedom, as in the authors' program. Source: GDPO (arXiv 2601.05242). Raises
    ConfigError without a name, and for one that a verdict lacks: what was not measured is not 0.
    """
    if not reward_weights:
        raise ConfigError("gdpo needs reward_weights, of some of the parts of verdicts")
    for episode in (episode for group in groups for episode in group):
        for name in sorted(set(reward_weights) - set(episode.parts)):
            raise ConfigError(
                f"algorithm.reward_weights names {name!r}, which a verdict does not have "
                f"among its parts: {', '.join(sorted(episode.parts)) or 'there are none'}. Name "
                "parts that verify gives in every verdict"
            )
    sums = [np.zeros(len(group)) for group in groups]
    for total, group in zip(sums, groups, strict=True):
        for name, weight in reward_weights.items():
            values = np.array([episode.parts[name] for episode in group], float)
            total += weight * outcome_advantages.grpo(values)
    scores = iter(outcome_advantages.grpo(np.concatenate([np.zeros(0), *sums])))
    return [spread(group, np.array([next(scores) for _ in group])) for group in groups]


def _token_returns(episode: EstimatorInput, discount: float) -> Floats:
    """float64[n]; the running return is carried unchanged over what was not sampled."""
    spread = np.zeros(len(episode.mask))
    spread[episode.mask] = discounted(episode.rewards_by_token()[episode.mask], discount)
    return spread
