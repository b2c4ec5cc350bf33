"""Learning from pairs, a better and a worse trajectory of one task: direct preference optimisation.

Flat torch tensors, one entry per pair.
"""

from torch import Tensor
from torch.nn import functional


def dpo(better: Tensor, worse: Tensor, beta: float) -> tuple[Tensor, Tensor]:
    """-log sigmoid(margin) and the margin, beta (better - worse), [p] each.

    Arguments [p]: the sum over the sampled tokens of a trajectory of log(policy / reference). A
    margin above 0 means that the policy separates the pair better than the reference did. Source:
    arXiv 2305.18290, equation 7.
    """
    margins = beta * (better - worse)
    return -functional.logsigmoid(margins), margins
