"""Score centering: the gradient of sampled tokens less what the sampler expects it to be.

Where the sampler's q is not the policy's p, the mean of grad log p over q is not 0, and updates
drift whatever the rewards are. The loss of each trained token has A sum_v q_v w_v log p_v more,
whose gradient takes that mean away; w = clamp(p / q, 1 - clip_low, 1 + clip_high) is the weight of
the objective, 1 at the defaults. Source: arXiv 2609.20807, equation 14. Other than there, q is the
whole distribution, and not its likeliest tokens with a model of the rest.
"""

from typing import TYPE_CHECKING

from turnwise.algorithms.objectives import Inputs, cispo
from turnwise.algorithms.parts import Requirement, Trait, part
from turnwise.conflicts import Need
from turnwise.ranges import NonNegative

if TYPE_CHECKING:
    from torch import Tensor


@part(
    "objective",
    "centred",
    needs=[Requirement.SAMPLER],
    conditions=[Need.ONE_LEARNER, Need.STILL_POLICY, Need.WHOLE_VOCABULARY],
    traits=[Trait.BY_ADVANTAGE],
)
def centred(
    inputs: Inputs, clip_low: NonNegative = 0.0, clip_high: NonNegative = 0.0
) -> "tuple[Tensor, Tensor]":
    """-sg(clip(r, 1 - low, 1 + high)) A log pi, to which score centering adds what the sampler
    expects; 1 and 1 are truncated importance sampling with it."""
    return cispo(inputs, clip_low, clip_high)


def expected(policy: "Tensor", sampler: "Tensor", low: float, high: float) -> "Tensor":
    """sum_v sg(clamp(p_v, (1 - low) q_v, (1 + high) q_v)) log p_v, from log-probabilities [n, V] of
    policy and sampler to [n]."""
    sampled = sampler.exp()
    # q times clamp(p / q, …), without dividing by a q that is 0.
    mass = policy.detach().exp().clamp(min=(1 - low) * sampled, max=(1 + high) * sampled)
    return (mass * policy).sum(-1)
