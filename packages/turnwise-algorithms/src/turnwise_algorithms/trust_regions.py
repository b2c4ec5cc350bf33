"""Trust regions with two sides: a token that has moved too far is out of the gradient, whether its
advantage would take it further or bring it back.

With correction `bypass` the move is from the sampler's probability, so that a token on which engine
and learner disagree is out, too; with any other it is from the learner's before the update.
"""

from typing import TYPE_CHECKING

from turnwise.algorithms.objectives import USUAL, Inputs, binary_kl, without
from turnwise.algorithms.parts import part
from turnwise.ranges import NonNegative

if TYPE_CHECKING:
    from torch import Tensor


@part("objective", "ipo", traits=USUAL)
def ipo(inputs: Inputs, trust_region: NonNegative = 0.3) -> "tuple[Tensor, Tensor]":
    """-r A, without tokens of |p - p_old| > trust_region (prime-rl 0.9, its default loss)."""
    moved = inputs.logprob.detach().exp() - inputs.old_logprob.exp()
    return without(inputs, moved.abs() > trust_region)


@part("objective", "kpop", traits=USUAL)
def kpop(inputs: Inputs, trust_region: NonNegative = 0.1) -> "tuple[Tensor, Tensor]":
    """-r A, without tokens whose KL(p || p_old) or KL(p_old || p) of "this token or another one"
    exceeds trust_region (KPop of Ant Group, 2026, where it is 0.1)."""
    policy, old = inputs.logprob.detach().exp(), inputs.old_logprob.exp()
    furthest = binary_kl(policy, old).maximum(binary_kl(old, policy))
    return without(inputs, furthest > trust_region)
