"""Routers of mixtures of experts, in float32 whatever the rest of a model is computed in.

A router takes the largest few of its logits. Rounded to bfloat16, many are equal or change places,
and the engine and the learner, whose batches differ, would send a token to other experts.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any

import torch
from torch import nn

from turnwise.forward.rounding import InFloat32


def route_in_float32(model: nn.Module) -> None:
    """Let every router of a model compute in float32, in place; saved models are as before."""
    for block in model.modules():
        for router in routers_of(block):
            kind: Any = type(router)
            router.__class__ = _exact(kind)


def routers_of(block: nn.Module) -> Iterator[nn.Module]:
    """The routers among the parts of a block; only a mixture of experts has one."""
    counts = {len(weight) for part in block.children() for weight in _stacked(part)}
    for part in block.children():
        weight = getattr(part, "weight", None)
        if isinstance(weight, nn.Parameter) and weight.ndim == 2 and len(weight) in counts:
            yield part


def experts_of(block: nn.Module) -> Iterator[tuple[Any, int]]:
    """The experts beside the router of a mixture, and their number."""
    if any(routers_of(block)):
        for part in block.children():
            counts = {len(weight) for weight in part.parameters(recurse=False)}
            if _stacked(part) and len(counts) == 1:
                yield part, counts.pop()


def _stacked(part: nn.Module) -> list[nn.Parameter]:
    """The experts' matrices, which are one weight [experts, ., .]."""
    return [weight for weight in part.parameters(recurse=False) if weight.ndim == 3]


class _InFloat32(nn.Module):
    """The forward pass of the next class in line, without lower precision."""

    def forward(self, *arguments: Any, **named: Any) -> Any:
        device = next(self.parameters()).device.type
        with torch.autocast(device, enabled=False), InFloat32():
            return super().forward(*arguments, **named)


@cache
def _exact(kind: Any) -> Any:
    return kind if issubclass(kind, _InFloat32) else type(kind.__name__, (_InFloat32, kind), {})
