"""Ranks that compute a row together, each a slice of its tokens: their exchanges.

For attention each rank gives away its slice of most heads, and gets all tokens of its own heads
(Ulysses, arXiv 2309.14509). Not here: rows, and attention (`forward/packing.py`).
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable


class Slices:
    """The `Slicing` of a process, with the others of a group of `count` neighbours."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.group = group
        self.rank = dist.get_rank(group)
        self.count = dist.get_world_size(group)

    def to_heads(self, states: Tensor) -> Tensor:
        """See Slicing."""
        exchanged: Tensor = _Exchange.apply(states, self, 1, 2)  # type: ignore[no-untyped-call]
        return exchanged

    def to_tokens(self, states: Tensor) -> Tensor:
        """See Slicing."""
        exchanged: Tensor = _Exchange.apply(states, self, 2, 1)  # type: ignore[no-untyped-call]
        return exchanged

    def joined(self, values: Tensor, counts: list[int]) -> Tensor:
        """See Slicing."""
        found: Tensor = _Joined.apply(values, self, counts)  # type: ignore[no-untyped-call]
        return found

    def exchanged(self, states: Tensor, split: int, joined: int) -> Tensor:
        """Give every rank a part of a tensor's one dimension, and put together what comes by the
        other."""
        parts = torch.stack(states.chunk(self.count, split))
        found = torch.empty_like(parts)
        dist.all_to_all_single(found, parts, group=self.group)
        return torch.cat(found.unbind(), joined)


class _Exchange(torch.autograd.Function):
    """An exchange, whose gradient is the exchange back."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, slices: Slices, split: int, joined: int) -> Tensor:
        ctx.back = slices, joined, split
        return slices.exchanged(states, split, joined)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        slices, split, joined = ctx.back
        return slices.exchanged(gradient, split, joined), None, None, None


class _Joined(torch.autograd.Function):
    """All slices' values, of which each rank differentiates its own."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, slices: Slices, counts: list[int]) -> Tensor:
        ctx.own = slices.rank, counts
        padded = values.new_zeros(max(counts))
        padded[: len(values)] = values
        found = [torch.empty_like(padded) for _ in counts]
        dist.all_gather(found, padded, group=slices.group)
        return torch.cat([row[:count] for row, count in zip(found, counts, strict=True)])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        rank, counts = ctx.own
        return torch.split(gradient, counts)[rank], None, None
