"""Advantages from a teacher's log-probabilities of what the policy sampled. Pure float64 numpy."""

import numpy as np

from turnwise.algorithms.estimators import EstimatorInput, Floats, of_episode
from turnwise.algorithms.parts import Requirement, Trait, part


@part(
    "estimator",
    "distillation",
    of=of_episode,
    needs=[Requirement.TEACHER],
    traits=(Trait.UNGROUPED, Trait.NO_SHAPING, Trait.NO_PENALTY),
)
def distillation(episode: EstimatorInput) -> Floats:
    """A_t = log teacher - log policy of each sampled token, 0 elsewhere: float64[n].

    In the mean that is less the reverse divergence, token by token, in the states that the policy
    gets into; rewards are not looked at. Source: on-policy distillation (arXiv 2306.13649) without
    discount. A token that the teacher did not score has 0. Raises ValueError without a teacher.
    """
    if episode.teacher_logprobs is None or episode.logprobs is None:
        raise ValueError("distillation needs log-probabilities of a teacher, and there are none")
    known = episode.mask & ~np.isnan(episode.teacher_logprobs)
    return np.where(known, episode.teacher_logprobs - episode.logprobs, 0.0)
