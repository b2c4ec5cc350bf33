"""A model's twin: the same model with weights drawn from a fixed seed, to find out with.

Which of several ways computes a model is decided on its twin, and so by its configuration, the
recipe and the machine alone: a run that is resumed with other weights, extreme ones or no numbers
at all, goes the way it went before. Not here: what is compared (`engines/runner.py`,
`learning/hidden.py`).
"""

import copy
from typing import Any

import torch
from torch import Tensor

from turnwise.models.rounding import allowed


@torch.inference_mode(False)
@torch.no_grad()
def twin_of(model: Any) -> Any:
    """Return a copy of the model, hooks and changed parts included, in evaluation mode.

    Products keep the size of what they are given, and norms scale by 0.5 to 1.5.
    """
    gradients = {id(weight.grad): None for weight in model.parameters()}
    twin = copy.deepcopy(model, gradients).eval()
    generator = torch.Generator().manual_seed(0)
    for weight in twin.parameters():
        if weight.ndim == 1:
            drawn = 0.5 + torch.rand(weight.shape, generator=generator, dtype=torch.float32)
        else:
            drawn = torch.randn(weight.shape, generator=generator, dtype=torch.float32)
            drawn *= weight.shape[-1] ** -0.5
        weight.copy_(drawn)
    return twin


def longest_sum(model: Any) -> int:
    """How many terms the longest product of a plain model's layers adds up."""
    settings = model.config
    heads = settings.num_attention_heads * model.model.layers[0].self_attn.head_dim
    sums = heads, settings.hidden_size, settings.intermediate_size
    return max(int(terms) for terms in sums)


def is_rounding(
    found: list[Tensor], exact: list[Tensor], moved: list[float], dtype: torch.dtype, terms: int
) -> bool:
    """Whether tensors that were computed in `dtype`, in float32 with sums of so many terms, are the
    exact ones up to rounding; `moved` are the sensitivities of these."""
    count = terms if dtype == torch.float32 else 1
    return all(
        float((one - other).abs().max()) <= allowed(dtype, count, by)
        for one, other, by in zip(found, exact, moved, strict=True)
    )
