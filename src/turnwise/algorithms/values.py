"""Advantages from a critic's values: generalised advantage estimation over tokens, turns, or both.

The recursions run over sampled tokens alone: a value before a tool's output is followed by the
value after it. Pure float64 numpy.
"""

from collections.abc import Callable

import numpy as np

from turnwise.algorithms.estimators import Credit, EstimatorInput, Floats, of_values
from turnwise.algorithms.parts import Function, Requirement, Trait, part
from turnwise.ranges import Positive, Share


def gae(rewards: Floats, values: Floats, discount: float, decay: float) -> Floats:
    """float64[m]: A_t = d_t + discount decay A_{t+1}, d_t = r_t + discount V_{t+1} - V_t; 0 after
    the end (Schulman et al., arXiv 1506.02438, equation 16)."""
    following = np.append(values[1:], 0.0)[: len(values)]  # none without values
    deltas = rewards + discount * following - values
    advantages = np.zeros(len(values))
    running = 0.0
    for step in range(len(values) - 1, -1, -1):
        running = deltas[step] + discount * decay * running
        advantages[step] = running
    return advantages


def _of_a_critic(name: str, description: str) -> Callable[[Function], Function]:
    """Declare an estimator of one episode with values."""
    needs, traits = [Requirement.CRITIC], [Trait.UNGROUPED]
    return part("estimator", name, description, of=of_values, needs=needs, traits=traits)


@_of_a_critic("token_gae", "advantage estimation over tokens (arXiv 1506.02438)")
def token_gae(episode: EstimatorInput, discount: Share = 1.0, decay: Share = 1.0) -> Credit:
    """Every sampled token is a step (PPO, arXiv 1707.06347; masked as in Search-R1, 2503.09516)."""
    values = _values(episode)[episode.mask]
    advantages = gae(episode.rewards_by_token()[episode.mask], values, discount, decay)
    return _scatter(episode, advantages, values)


@_of_a_critic(
    "length_adaptive_gae", "over tokens, with a decay that grows with length (arXiv 2504.05118)"
)
def length_adaptive_gae(
    episode: EstimatorInput, discount: Share = 1.0, alpha: Positive = 0.05
) -> Credit:
    """The policy's decay is 1 - 1/(alpha l), at least 0, for l sampled tokens, the critic's is 1
    (VAPO, arXiv 2504.05118, 4.2)."""
    length = int(episode.mask.sum())
    decay = max(0.0, 1 - 1 / (alpha * length)) if length else 0.0
    targets = token_gae(episode, discount, 1.0).targets
    return Credit(token_gae(episode, discount, decay).advantages, targets)


@_of_a_critic("turn_gae", "advantage estimation over turns (arXiv 2512.17008)")
def turn_gae(episode: EstimatorInput, discount: Share = 1.0, decay: Share = 1.0) -> Credit:
    """Each turn with sampled tokens is a step: its value is that at its first one, where alone the
    critic is trained, and its tokens share one advantage (Turn-PPO, arXiv 2512.17008)."""
    starts = episode.turn_starts
    acted = starts >= 0
    values = _values(episode)[starts[acted]]
    advantages = np.zeros(episode.turns)
    advantages[acted] = gae(episode.rewards_by_turn()[acted], values, discount, decay)
    targets = np.full(len(episode.mask), np.nan)
    targets[starts[acted]] = advantages[acted] + values
    return Credit(episode.on_tokens(advantages), targets)


@_of_a_critic(
    "bilevel_gae",
    "advantage estimation over turns, then over each turn's tokens (arXiv 2504.20073)",
)
def bilevel_gae(
    episode: EstimatorInput, discount: Share = 1.0, decay: Share = 1.0, turn_discount: Share = 0.95
) -> Credit:
    """Over turns first, with `turn_discount`; then over each turn's tokens, with the turn's target
    at its last one as the only reward.

    Source: VAGEN (arXiv 2510.16907) and RAGEN (arXiv 2504.20073). Turn ends come from turn ids, not
    from rewards as in the published code; as there, a turn's value is its last sampled token's.
    """
    ends = episode.turn_ends
    acted = ends >= 0
    values = _values(episode)
    high = gae(episode.rewards_by_turn()[acted], values[ends[acted]], turn_discount, decay)
    targets = high + values[ends[acted]]
    advantages = np.zeros(len(episode.mask))
    for turn, target in zip(np.flatnonzero(acted), targets, strict=True):
        tokens = np.flatnonzero(episode.mask & (episode.turn == turn))
        rewards = np.zeros(len(tokens))
        rewards[-1] = target
        advantages[tokens] = gae(rewards, values[tokens], discount, decay)
    return _scatter(episode, advantages[episode.mask], values[episode.mask])


def explained_variance(values: Floats, returns: Floats) -> float:
    """1 - Var(returns - values) / Var(returns); NaN where the returns do not vary."""
    variance = float(np.var(returns))
    return 1 - float(np.var(returns - values)) / variance if variance else float("nan")


def _values(episode: EstimatorInput) -> Floats:
    if episode.values is None:
        raise ValueError("this estimator needs a critic's values, and there are none")
    return episode.values


def _scatter(episode: EstimatorInput, advantages: Floats, values: Floats) -> Credit:
    full, targets = np.zeros(len(episode.mask)), np.full(len(episode.mask), np.nan)
    full[episode.mask] = advantages
    targets[episode.mask] = advantages + values
    return Credit(full, targets)
