"""Filters of trained tokens that would cost the policy its entropy, and are treated apart.

Entropy falls where tokens' log-probability and advantage vary together, mostly in few tokens. A
filter ranks all trained tokens of an optimizer batch once, before the update, so that neither
micro-batches nor chance have a part in it. Pure float64 numpy. Source of all: arXiv 2505.22617.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from turnwise.algorithms.estimator_input import Floats
from turnwise.algorithms.parts import part
from turnwise.ranges import NonNegative, Share


class Treatment(NamedTuple):
    """The treatment of n trained tokens, float64[n] each."""

    loss_scale: Floats
    """Factor on the objective: 1, or 0 for a token taken out, which stays in the denominators."""
    kl_penalty: Floats
    """Weight of the divergence from the policy before the update, added to the loss; 0 for most."""


TokenFilter = Callable[..., Treatment]
"""(advantages float64[n], old log-probs float64[n], **numbers) -> treatment."""


def covariances(advantages: Floats, logprobs: Floats) -> Floats:
    """(A - mean A) (log pi - mean log pi): what each token adds to the covariance of the two."""
    product: Floats = (advantages - advantages.mean()) * (logprobs - logprobs.mean())
    return product


@part("token_filter", "none", "all tokens alike")
def none(advantages: Floats, logprobs: Floats) -> Treatment:
    """All tokens alike."""
    return Treatment(np.ones(len(advantages)), np.zeros(len(advantages)))


@part(
    "token_filter",
    "clip_cov",
    "without a few tokens of high covariance of log-prob and advantage (arXiv 2505.22617)",
)
def clip_cov(
    advantages: Floats,
    logprobs: Floats,
    share: Share = 2e-4,
    covariance_low: NonNegative = 1.0,
    covariance_high: NonNegative = 5.0,
) -> Treatment:
    """Takes out the share of the tokens, one at least, with the largest covariance between low and
    high; the paper draws them by lot."""
    treatment = none(advantages, logprobs)
    if len(advantages):
        covariance = covariances(advantages, logprobs)
        inside = (covariance > covariance_low) & (covariance < covariance_high)
        chosen = _largest(np.where(inside, covariance, -np.inf), share)
        treatment.loss_scale[chosen[inside[chosen]]] = 0.0
    return treatment


@part(
    "token_filter",
    "kl_cov",
    "those of the highest covariance are held back by a KL term (arXiv 2505.22617)",
)
def kl_cov(
    advantages: Floats, logprobs: Floats, share: Share = 2e-3, penalty: NonNegative = 1.0
) -> Treatment:
    """Penalises that share of the tokens, at least one, with the largest covariance."""
    treatment = none(advantages, logprobs)
    if len(advantages):
        treatment.kl_penalty[_largest(covariances(advantages, logprobs), share)] = penalty
    return treatment


def _largest(numbers: Floats, share: float) -> np.ndarray:
    """Their places; of equal numbers the earlier one."""
    return np.argsort(-numbers, kind="stable")[: max(1, int(share * len(numbers)))]
