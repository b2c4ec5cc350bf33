"""Bounds on the distance of computed numbers from the exact ones, by their type.

The unit is u, half the type's machine epsilon: the most by which rounding changes a number, as a
part of it. A sum of n terms rounds up to n times; since errors are of either sign it ends about as
far from the exact sum as if each term had been changed by sqrt(n) u, with a small factor for the
worst of many sums (Higham and Mary, A New Approach to Probabilistic Rounding Error Analysis, SIAM
J. Sci. Comput. 41(5), 2019). How far such changes of terms move what comes out at the end is a
property of the exact computation and is measured in float64, which no processor's order of
summation disturbs. Hence

    allowed = FACTOR * sqrt(terms) * u * sensitivity

holds wherever the same mathematics is computed, in whatever order. An error of another kind (a
wrong weight, a missing head, a rotation that is off by one) is not proportional to u, and exceeds
it by orders of magnitude. Not here: what is compared.
"""

import math
from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

FACTOR = 4.0
"""The worst of many sums, and what is rounded between them (norms, exponentials, gates)."""
STEP = 2.0**-13
"""The part by which weights are changed to see how far that moves the result: far above the
rounding of the norms of transformers, which are in float32 whatever the model's type, and far below
1."""
DRAWS = 3
"""Changes in random directions; the largest movement counts."""


def allowed(dtype: torch.dtype, terms: int, sensitivity: float) -> float:
    """The largest distance from the exact number of one that was computed in `dtype`.

    `terms` is the length of the longest sum whose partial sums are in `dtype`; 1 for products in
    bfloat16, which are summed in float32 and rounded once. `sensitivity` is the size of the
    numbers that make up the result: for one sum that of its terms together, for a network what
    `sensitivities` finds.
    """
    return FACTOR * math.sqrt(terms) * torch.finfo(dtype).eps / 2 * sensitivity


def sensitivities(
    function: Callable[[], Sequence[Tensor]], weights: Iterable[Tensor]
) -> list[float]:
    """The movement of each tensor that a function of float64 weights gives, at its most moved
    element, per part by which each weight is changed up or down at random.

    The weights are changed in place while this runs, from a fixed seed, and then put back.
    """
    changed = [weight for weight in weights if weight.is_floating_point()]
    before = [weight.detach().clone() for weight in changed]
    exact = [part.detach().clone() for part in function()]
    generator = torch.Generator().manual_seed(0)
    found = [0.0] * len(exact)
    try:
        for _ in range(DRAWS):
            with torch.no_grad():
                for weight, kept in zip(changed, before, strict=True):
                    signs = torch.randint(0, 2, kept.shape, generator=generator) * 2 - 1
                    weight.copy_(kept * (1 + STEP * signs.to(kept)))
            for index, (part, there) in enumerate(zip(function(), exact, strict=True)):
                if there.numel():
                    moved = float((part.detach() - there).abs().max()) / STEP
                    found[index] = max(found[index], moved)
    finally:
        with torch.no_grad():
            for weight, kept in zip(changed, before, strict=True):
                weight.copy_(kept)
    return found
