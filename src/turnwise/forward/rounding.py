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
it by orders of magnitude.

Where a model's own layers run in another way, in bfloat16, the measure is simpler: how far rounding
alone moves the same computation (`rounding_to_bfloat16`), a few times of which is allowed.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

FACTOR = 4.0
"""The worst of many sums, and what is rounded between them (norms, exponentials, gates)."""
STEP = 2.0**-13
"""The part by which weights are changed: far above the float32 rounding of norms, far below 1."""
ROUNDINGS = 3.0
"""Times `rounding_to_bfloat16` that two computations in bfloat16 may be apart."""
DRAWS = 3
"""Changes in random directions; the largest movement counts."""


def allowed(dtype: torch.dtype, terms: int, sensitivity: float) -> float:
    """The largest distance from the exact number of one computed in `dtype`.

    `terms` is the length of the longest sum with partial sums in `dtype`; 1 for products in
    bfloat16, which are summed in float32. `sensitivity` is what the terms of one sum add up to in
    size, or for a network what `sensitivities` finds.
    """
    return FACTOR * math.sqrt(terms) * torch.finfo(dtype).eps / 2 * sensitivity


def sensitivities(
    function: Callable[[], Sequence[Tensor]], weights: Iterable[Tensor]
) -> list[float]:
    """The largest movement of each tensor of a function of float64 weights, per part by which each
    weight is changed at random, in place and from a fixed seed; then all are put back."""
    changed = [weight for weight in weights if weight.is_floating_point()]
    # Kept, and not computed back: a weight that was scaled up and down again is another number.
    before = [weight.detach().clone() for weight in changed]
    exact = [part.detach().clone() for part in function()]
    generator = torch.Generator().manual_seed(0)
    found = [0.0] * len(exact)
    try:
        for _ in range(DRAWS):
            with torch.no_grad():
                for weight, kept in zip(changed, before, strict=True):
                    signs = torch.randint(0, 2, kept.shape, generator=generator) * 2 - 1
                    # In proportion, as rounding changes a number; a weight of 0 stays 0.
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


class InFloat32(TorchFunctionMode):
    """Computes in float32 inside, whatever the type of a model's weights, which are converted where
    they are used: the model is not in memory twice."""

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        del types
        args, kwargs = tree_map(_in_float32, (args, kwargs or {}))
        return function(*args, **kwargs)


def _in_float32(value: Any) -> Any:
    half = isinstance(value, Tensor) and value.dtype in (torch.bfloat16, torch.float16)
    return value.float() if half else value


@torch.no_grad()
def rounding_to_bfloat16(function: Callable[[], Tensor], device: torch.device) -> Tensor:
    """The distance of a function's results in bfloat16 from those in float32; 0 where one is not
    finite."""
    with torch.autocast(device.type, torch.bfloat16):
        rounded = function()
    with InFloat32():
        exact = function()
    return (rounded - exact).abs().nan_to_num(0.0, posinf=0.0)
