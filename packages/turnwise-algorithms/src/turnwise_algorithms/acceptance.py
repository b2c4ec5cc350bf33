"""Acceptance of updates by what the sampler makes of them: the formulas of MIPU.

The engine's policy mu is what is used in the end, and it differs from the learner's policy pi of
the same weights. An update of both is kept where J(mu) - J(pi), estimated by T, is not below -c,
and else undone. Source: arXiv 2606.29526, step 2. Its step 1, an update by ratios to the sampler,
is the correction `truncated`.
"""

from collections.abc import Sequence
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from turnwise.algorithms.parts import Requirement, part
from turnwise.conflicts import Need
from turnwise.ranges import NonNegative, Range


@part(
    "extension",
    "acceptance",
    needs=[Requirement.ACCEPTANCE],
    conditions=[Need.ONE_LEARNER, Need.POLICY_LOSS, Need.REWARDS_ALONE, Need.STILL_POLICY],
)
def acceptance(
    tolerance: NonNegative = 4e-3,
    last_tolerance: NonNegative = 1e-3,
    tolerance_steps: Annotated[int, Range(1)] = 100,
) -> None:
    """Undo a step's updates if T is below -c afterwards. The tolerance c goes from the first to the
    last in so many steps; the defaults are those of the paper's smaller model."""


def inference_gap(
    log_ratios: Sequence[NDArray[np.float64]], advantages: Sequence[NDArray[np.float64]]
) -> float:
    """T = -mean of rho A over trajectories that mu sampled, each with a float64[n] of its sampled
    tokens: rho is the exponential of its mean log(pi / mu), A its mean advantage."""
    pairs = zip(log_ratios, advantages, strict=True)
    return -float(np.mean([np.exp(ratio.mean()) * own.mean() for ratio, own in pairs]))


def tolerance_at(step: int, tolerance: float, last_tolerance: float, tolerance_steps: int) -> float:
    """The tolerance c of a step, counted from 0."""
    return tolerance + (last_tolerance - tolerance) * min(1.0, step / tolerance_steps)
