"""A baseline for each token from what the group's members have left to gain there. Pure float64
numpy."""

from collections.abc import Sequence

import numpy as np

from turnwise.algorithms.estimators import EstimatorInput, Floats, of_tokens
from turnwise.algorithms.outcome_advantages import differing
from turnwise.algorithms.parts import Requirement, part


@part("estimator", "otb", of=of_tokens, needs=[Requirement.SCORE_NORMS])
def otb(group: Sequence[EstimatorInput]) -> list[Floats]:
    """A_t = G_t - B_t, B_t = sum_i G_{i,t} W_{i,t} / sum_i W_{i,t}: float64[n] for each episode, 0
    where nothing was sampled. G_t is the return from token t on, without discount; W_t the sum of
    the score norms 1 - 2 pi + sum_v pi_v^2 up to and with t.

    That is the baseline of least variance for gradients that grow as the logits' do. t counts what
    an episode sampled; one that has ended by t is not in B_t. Where one episode is left, or the
    returns are equal: exactly 0 (the published program leaves the return itself in the tail of the
    longest). Each episode's own return is in its baseline and W depends on what was sampled, so the
    mean is not the policy gradient. Source: the Optimal Token Baseline (arXiv 2602.07078), over
    turns as in its tool-integrated form. Raises ValueError without score norms.
    """
    length = max((int(episode.mask.sum()) for episode in group), default=0)
    returns, weights = np.full((2, len(group), length), np.nan)
    for row, episode in enumerate(group):
        count = int(episode.mask.sum())
        returns[row, :count] = episode.rewards_by_token()[episode.mask][::-1].cumsum()[::-1]
        weights[row, :count] = np.nan_to_num(_norms(episode)[episode.mask]).cumsum()
    baselines = np.array([_baseline(*column) for column in zip(returns.T, weights.T, strict=True)])
    advantages = []
    for row, episode in enumerate(group):
        own = np.zeros(len(episode.mask))
        count = int(episode.mask.sum())
        own[episode.mask] = np.nan_to_num(returns[row, :count] - baselines[:count])
        advantages.append(own)
    return advantages


def _baseline(returns: Floats, weights: Floats) -> float:
    """NaN without anything to compare."""
    there = ~np.isnan(returns)
    returns, weights = returns[there], weights[there]
    if not differing(returns) or not weights.any():
        return float("nan")
    return float(returns @ weights / weights.sum())


def _norms(episode: EstimatorInput) -> Floats:
    if episode.score_norms is None:
        raise ValueError("this estimator needs score norms, and there are none")
    return episode.score_norms
