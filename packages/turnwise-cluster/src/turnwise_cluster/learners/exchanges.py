"""Exchanges of ranks that compute together: rows in slices, and tokens of experts.

Ranks with slices of a row: for attention each gives away its slice of most heads, and gets all
tokens of its own heads (Ulysses, arXiv 2309.14509). Experts stay on the rank that has them, as many
of every layer as the others have: tokens go to them, and come back computed. Their gradient is that
of all ranks' tokens: nothing is gathered and nothing added up.
"""

from functools import cache
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard

from turnwise.errors import NotSupportedError
from turnwise.forward.routing import experts_of


class Slices:
    """The `Slicing` of a process, with the others of a group of `count` neighbours."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.group = group
        self.rank = dist.get_rank(group)
        self.count = dist.get_world_size(group)

    def to_heads(self, states: Tensor) -> Tensor:
        exchanged: Tensor = _Exchange.apply(states, self, 1, 2)  # type: ignore[no-untyped-call]
        return exchanged

    def to_tokens(self, states: Tensor) -> Tensor:
        exchanged: Tensor = _Exchange.apply(states, self, 2, 1)  # type: ignore[no-untyped-call]
        return exchanged

    def joined(self, values: Tensor, counts: list[int]) -> Tensor:
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


def divide_experts(model: nn.Module, mesh: DeviceMesh) -> set[nn.Parameter]:
    """Leave this rank its experts of every layer; returns their weights, each a part of one tensor
    as the parts by FSDP are. Raises NotSupportedError where they do not divide by the ranks."""
    weights = set()
    for experts, count in [found for part in model.modules() for found in experts_of(part)]:
        if count % mesh.size():
            raise NotSupportedError(
                f"{count} experts do not divide by {mesh.size()} learners: set "
                "cluster.expert_parallel=false"
            )
        kind: Any = type(experts)
        # The module stays, with its names and weights, and computes in another way from now on.
        experts.__class__ = _exchanging(kind)
        experts.num_experts = count // mesh.size()
        for name, weight in experts.named_parameters(recurse=False):
            own = weight.data.chunk(mesh.size())[mesh.get_local_rank()].clone()  # not a view of all
            divided = DTensor.from_local(own, mesh, [Shard(0)], run_check=False)
            parameter = nn.Parameter(divided, requires_grad=weight.requires_grad)
            setattr(experts, name, parameter)
            weights.add(parameter)
    return weights


class _Exchanging(nn.Module):
    """The class after this one is that of experts [., ...] which are called with hidden states
    [n, width], places of experts int64[n, k] and weights [n, k]."""

    num_experts: int
    """The number of experts that this rank has."""

    def forward(self, *arguments: Any, **named: Any) -> Tensor:
        hidden, experts, weights = [*arguments, *named.values()]
        own, ranks = self.num_experts, dist.get_world_size()
        chosen = experts.reshape(-1)
        order = torch.argsort(chosen, stable=True)
        leaving = torch.bincount(chosen, minlength=own * ranks).view(ranks, own)
        coming = torch.empty_like(leaving)
        dist.all_to_all_single(coming, leaving)
        sizes = leaving.sum(1).tolist(), coming.sum(1).tolist()
        tokens = _sent(hidden[order // experts.shape[-1]], sizes[0], sizes[1])  # k places each
        places = torch.arange(own, device=hidden.device).repeat(ranks)
        places = places.repeat_interleave(coming.flatten())
        found = self._computed(tokens, places)
        back = found.new_empty(len(order), found.shape[-1])
        back = back.index_copy(0, order, _sent(found, sizes[1], sizes[0]))
        mixed: Tensor = (back.view(*experts.shape, -1) * weights.unsqueeze(-1)).sum(1)
        return mixed.to(hidden.dtype)

    def _computed(self, tokens: Tensor, places: Tensor) -> Tensor:
        """Compute tokens by this rank's experts; some token where there is none, so that it has
        a gradient of every weight."""
        none = not len(tokens)
        if none:
            tokens = torch.cat([tokens, tokens.new_zeros(1, tokens.shape[1])])
            places = places.new_zeros(1)
        held: dict[str, Any] = self._parameters
        kept = dict(held)
        try:
            held.update({name: weight.to_local() for name, weight in kept.items()})
            # They are weighed where they came from.
            ones = torch.ones_like(places, dtype=tokens.dtype)[:, None]
            found: Tensor = super().forward(tokens, places[:, None], ones)
        finally:
            held.update(kept)
        return found[:0] if none else found


@cache
def _exchanging(kind: Any) -> Any:
    return type(kind.__name__, (_Exchanging, kind), {})


def _sent(rows: Tensor, leaving: list[int], coming: list[int]) -> Tensor:
    """Send rows [n, width] to the ranks in order, so many to each; returns those that come."""
    found: Tensor = _Sent.apply(rows, leaving, coming)  # type: ignore[no-untyped-call]
    return found


class _Sent(torch.autograd.Function):
    """Arguments and output are those of `_sent`; the gradient goes the way back."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, leaving: list[int], coming: list[int]) -> Tensor:
        ctx.sizes = leaving, coming
        found = rows.new_empty(sum(coming), rows.shape[1])
        dist.all_to_all_single(found, rows.contiguous(), coming, leaving)
        return found

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        leaving, coming = ctx.sizes
        found = gradient.new_empty(sum(leaving), gradient.shape[1])
        dist.all_to_all_single(found, gradient.contiguous(), leaving, coming)
        return found, None, None
