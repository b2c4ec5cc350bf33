"""From a batch of groups to an advantage for every sampled token: the estimators by name.

An estimator gets the groups of one batch and its own numbers, and gives for each episode of each
group the advantage of its tokens: 0 where nothing was sampled. Those that use a critic also give
what the critic is to be trained towards. Pure float64 numpy.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from turnwise.algorithms import hindsight, outcomes, playouts, process, trees, turns, values
from turnwise.algorithms.distillation import distillation
from turnwise.algorithms.estimator_input import EstimatorInput, Floats, Groups
from turnwise.algorithms.token_baselines import otb
from turnwise.errors import ConfigError

WHITENING_FLOOR = 1e-8
"""Added to the variance."""


class Credit(NamedTuple):
    """float64[n] each."""

    advantages: Floats
    targets: Floats | None = None
    """The critic's, NaN where it is not trained; None where there is no critic."""


Estimator = Callable[..., list[list[Credit]]]
"""(groups, **numbers) -> for each group, for each episode. Raises ValueError where data lack."""


def whiten(batch: list[list[Credit]], groups: Groups) -> list[list[Credit]]:
    """Advantages less their mean over all sampled tokens of the batch, over their standard
    deviation. Fewer than two sampled tokens, or all equal: 0. Targets are left as they are."""
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
    equal = len(sampled) < 2 or sampled.min() == sampled.max()
    return [
        [
            Credit(np.where(mask & (not equal), (credit.advantages - mean) / scale, 0.0), credit[1])
            for credit, mask in zip(credits, own, strict=True)
        ]
        for credits, own in zip(batch, masks, strict=True)
    ]


def _of_outcomes(function: Callable[..., Floats]) -> Estimator:
    """One number per trajectory, from the rewards of its group, on each of its tokens."""

    def estimate(groups: Groups, **numbers: float) -> list[list[Credit]]:
        return [_spread(group, function(_totals(group), **numbers)) for group in groups]

    return estimate


def _of_turns(function: Callable[..., list[Floats]]) -> Estimator:
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


def _of_tokens(function: Callable[..., list[Floats]]) -> Estimator:
    """One number per token, from the episodes of its group."""

    def estimate(groups: Groups, **numbers: float) -> list[list[Credit]]:
        return [[Credit(row) for row in function(group, **numbers)] for group in groups]

    return estimate


def _of_values(function: Callable[..., values.Estimate]) -> Estimator:
    """From an episode's rewards and the critic's values."""

    def estimate(groups: Groups, **numbers: float) -> list[list[Credit]]:
        return [[Credit(*function(episode, **numbers)) for episode in group] for group in groups]

    return estimate


def _of_teacher(function: Callable[[EstimatorInput], Floats]) -> Estimator:
    """From what a teacher makes of an episode's sampled tokens."""

    def estimate(groups: Groups) -> list[list[Credit]]:
        return [[Credit(function(episode)) for episode in group] for group in groups]

    return estimate


def none(groups: Groups) -> list[list[Credit]]:
    """0 everywhere."""
    return [[Credit(np.zeros(len(episode.mask))) for episode in group] for group in groups]


def reinforce(groups: Groups) -> list[list[Credit]]:
    """The trajectory's reward itself; it compares with nothing."""
    return [_spread(group, _totals(group)) for group in groups]


def reinforce_baseline(groups: Groups) -> list[list[Credit]]:
    """The trajectory's reward less the mean of all others of the batch, whatever their task."""
    advantages = outcomes.rloo(np.concatenate([np.zeros(0), *map(_totals, groups)]))
    remaining = iter(advantages)
    return [_spread(group, np.array([next(remaining) for _ in group])) for group in groups]


def returns(groups: Groups, discount: float) -> list[list[Credit]]:
    """What is still to come from each token on, discounted per sampled token (REINFORCE++)."""
    return [[Credit(_token_returns(episode, discount)) for episode in group] for group in groups]


def returns_baseline(groups: Groups, discount: float) -> list[list[Credit]]:
    """The same, less the mean reward of the group (REINFORCE++-baseline)."""
    batch = []
    for group in groups:
        mean = float(_totals(group).mean()) if group else 0.0
        batch.append(
            [
                Credit(np.where(episode.mask, _token_returns(episode, discount) - mean, 0.0))
                for episode in group
            ]
        )
    return batch


def opo(groups: Groups) -> list[list[Credit]]:
    """`outcomes.opo` with the sampled tokens as lengths."""
    return [
        _spread(
            group,
            outcomes.opo(_totals(group), np.array([e.mask.sum() for e in group], np.float64)),
        )
        for group in groups
    ]


def grpo(groups: Groups) -> list[list[Credit]]:
    """`outcomes.grpo` of what the environment gave; what the trainer adds to rewards, such as a KL
    penalty, is taken less the group's mean and not divided.

    So a penalty stays as small as it is where a group's rewards are all equal; among the z-scored
    rewards it would become as large as they are. RAGEN's program (arXiv 2504.20073) too normalises
    rewards before it adds the penalty.
    """
    batch = []
    for group in groups:
        added = np.array([episode.added_reward for episode in group], np.float64)
        scores = outcomes.grpo(_totals(group) - added) + outcomes.dr_grpo(added)
        batch.append(_spread(group, scores))
    return batch


def gdpo(groups: Groups, reward_weights: Mapping[str, float]) -> list[list[Credit]]:
    """A_i = z_batch(sum_n w_n z_group(r_n,i)): each named part of the reward z-scored in its group,
    the weighted sum of these z-scored over all episodes of the batch.

    Parts with different spreads count by their weights alone. The reward itself and rewards per
    turn are not among the parts. Standard deviations have n-1 degrees of freedom, as in the
    authors' program. Source: GDPO (arXiv 2601.05242). Raises ConfigError without any name, and for
    a name that a verdict has no part of: what is missing was not measured, and is not 0.
    """
    if not reward_weights:
        raise ConfigError("gdpo needs reward_weights, of some of the parts of verdicts")
    for episode in (episode for group in groups for episode in group):
        for name in sorted(set(reward_weights) - set(episode.parts)):
            raise ConfigError(
                f"algorithm.overrides.reward_weights names {name!r}, which a verdict does not have "
                f"among its parts: {', '.join(sorted(episode.parts)) or 'there are none'}. Name "
                "parts that verify gives in every verdict"
            )
    sums = [
        sum(
            (
                weight * outcomes.grpo(np.array([e.parts[name] for e in group], float))
                for name, weight in reward_weights.items()
            ),
            start=np.zeros(len(group)),
        )
        for group in groups
    ]
    scores = iter(outcomes.grpo(np.concatenate([np.zeros(0), *sums])))
    return [_spread(group, np.array([next(scores) for _ in group])) for group in groups]


def remax(groups: Groups) -> list[list[Credit]]:
    """`playouts.remax` on each token."""
    return [_spread(group, playouts.remax(group)) for group in groups]


ESTIMATORS: dict[str, Estimator] = {
    "reinforce": reinforce,
    "reinforce_baseline": reinforce_baseline,
    "grpo": grpo,
    "dr_grpo": _of_outcomes(outcomes.dr_grpo),
    "rloo": _of_outcomes(outcomes.rloo),
    "max_rl": _of_outcomes(outcomes.max_rl),
    "pass_at_k": _of_outcomes(outcomes.pass_at_k),
    "opo": opo,
    "otb": _of_tokens(otb),
    "gdpo": gdpo,
    "returns": returns,
    "returns_baseline": returns_baseline,
    "turn_rloo": _of_turns(turns.turn_rloo),
    "mt_grpo": _of_turns(turns.mt_grpo),
    "gigpo": _of_turns(turns.gigpo),
    "information_gain": _of_turns(turns.information_gain),
    "tree_grpo": _of_turns(trees.tree_grpo),
    "arpo": _of_turns(trees.arpo),
    "arpo_soft": _of_turns(trees.arpo_soft),
    "remax": remax,
    "counterfactual": _of_turns(playouts.counterfactual),
    "hca": _of_turns(hindsight.hca),
    "hcapo": _of_turns(hindsight.hcapo),
    "process_rloo": _of_tokens(process.process_rloo),
    "token_gae": _of_values(values.token_gae),
    "turn_gae": _of_values(values.turn_gae),
    "bilevel_gae": _of_values(values.bilevel_gae),
    "length_adaptive_gae": _of_values(values.length_adaptive_gae),
    "none": none,
    "distillation": _of_teacher(distillation),
}


def _spread(group: Sequence[EstimatorInput], numbers: Floats) -> list[Credit]:
    return [
        Credit(np.where(episode.mask, number, 0.0))
        for episode, number in zip(group, numbers, strict=True)
    ]


def _totals(group: Sequence[EstimatorInput]) -> Floats:
    """Outcome and all other rewards of each episode."""
    return np.array([episode.total_reward for episode in group], np.float64)


def _token_returns(episode: EstimatorInput, discount: float) -> Floats:
    """float64[n]; the running return is carried unchanged over what was not sampled."""
    rewards = episode.rewards_by_token()[episode.mask]
    for step in range(len(rewards) - 2, -1, -1):
        rewards[step] += discount * rewards[step + 1]
    spread = np.zeros(len(episode.mask))
    spread[episode.mask] = rewards
    return spread
