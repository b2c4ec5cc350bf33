"""The one bound of tests that compare what was computed with what it should be: a float64
computation, and how far rounding may be from it on any processor (`turnwise/forward/equality.py`).
"""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from turnwise.forward.equality import allowed, sensitivities

Computation = Callable[[Any], Sequence[Tensor]]
"""From a model to the tensors that are compared."""


def bounded(
    model: Any, compute: Computation, dtype: torch.dtype = torch.float32
) -> tuple[list[Tensor], list[float]]:
    """What a float64 copy of the model gives, and how far from each tensor of it one that was
    computed in `dtype` may be, at any element.

    No sum of a tiny model is longer than the largest side of a weight (products in bfloat16 add up
    in float32).
    """
    exact = copy.deepcopy(model).double()
    longest = max(max(weight.shape) for weight in exact.parameters())
    terms = 1 if dtype == torch.bfloat16 else longest
    moved = sensitivities(lambda: compute(exact), exact.parameters())
    parts = [part.detach() for part in compute(exact)]
    sizes = [max(by, float(part.abs().max())) for by, part in zip(moved, parts, strict=True)]
    return parts, [allowed(dtype, terms, size) for size in sizes]  # the result is rounded too


def excess(
    found: Sequence[Tensor], model: Any, compute: Computation, dtype: torch.dtype = torch.float32
) -> float:
    """How many times as far as rounding may be the worst element is from the exact one; one that
    is no number is infinitely far."""
    exact, bounds = bounded(model, compute, dtype)
    assert len(found) == len(exact)
    worst = 0.0
    for one, other, bound in zip(found, exact, bounds, strict=True):
        assert one.shape == other.shape
        distance = float((one.detach().double() - other).abs().max())
        if distance > 0:
            worst = max(worst, distance / bound if bound else float("inf"))
        elif distance != 0:
            worst = float("inf")
    return worst


def assert_rounding(
    found: Sequence[Tensor], model: Any, compute: Computation, dtype: torch.dtype = torch.float32
) -> None:
    """Assert that tensors which were found are what `compute` gives in float64, up to rounding."""
    assert excess(found, model, compute, dtype) <= 1


def gradients(model: Any, total: Tensor) -> list[Tensor]:
    """Of a sum by each weight that it depends on; leaves no gradients behind."""
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    found = torch.autograd.grad(total, weights, allow_unused=True)
    return [gradient for gradient in found if gradient is not None]
