"""The routers of mixtures of experts, and their choices: recorded in one pass, replayed in another.

Routing replay (R3, arXiv 2510.11370): the learner sends a token to the experts that it was sampled
with, and weights them by its own router: g_i = exp(s_i) / sum over the recorded j of exp(s_j),
where a model normalises over its choice, else as the model does. So gradients reach the router, and
no expert changes because two passes round differently.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from turnwise.errors import NotSupportedError
from turnwise.forward.equality import PROBE, InFloat32, ordinary_tokens


def route_in_float32(model: nn.Module) -> None:
    """Let every router of a model compute in float32, in place; saved models are as before. Rounded
    to bfloat16, many of its logits are equal or change places, and the engine and the learner,
    whose batches differ, would send a token to other experts."""
    for block in model.modules():
        for router in routers_of(block):
            kind: Any = type(router)
            router.__class__ = _exact(kind)  # its weights and hooks stay


def routers_of(block: nn.Module) -> Iterator[nn.Module]:
    """A block's routers, found by their shape: beside experts, with a row of weights for each."""
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
        # Both: autocast would round float32 weights, and InFloat32 raises those in bfloat16.
        with torch.autocast(device, enabled=False), InFloat32():
            return super().forward(*arguments, **named)


@cache
def _exact(kind: Any) -> Any:
    return kind if issubclass(kind, _InFloat32) else type(kind.__name__, (_InFloat32, kind), {})


Choose = Callable[[int, Tensor], Tensor]
"""(number of the router, its own choice int64[tokens, k]) -> the choice to be made."""
TOP_K = (torch.topk, Tensor.topk)


@dataclass
class Replay:
    """The choices that routers repeat in a pass, and how often they would have made others."""

    experts: Tensor
    """int64[B, T, routers, k]; below 0 where a token's own routers choose."""
    tokens: int = 0
    """Tokens whose choices were repeated, in all passes."""
    changed: int = 0
    """How many of them at least one router would have sent to other experts."""


def routers_in(model: nn.Module) -> list[nn.Module]:
    """The routers of a model, from the first layer to the last."""
    return [router for block in model.modules() for router in routers_of(block)]


@contextmanager
def recorded_experts(routers: Sequence[nn.Module]) -> Iterator[list[Tensor]]:
    """Record what routers choose in one pass: int64[tokens, k] for each router."""
    found: list[Tensor] = []

    def choose(number: int, own: Tensor) -> Tensor:
        del number
        found.append(own)
        return own

    with _choosing(routers, choose):
        yield found


def replayed_experts(
    model: nn.Module, replay: Replay | None, kept: Tensor | None = None
) -> AbstractContextManager[None]:
    """Let routers repeat choices over a batch, or over its `kept` places, bool[B, T], in a row.
    Raises NotSupportedError for choices of another number of routers."""
    if replay is None:
        return nullcontext()
    experts = replay.experts.flatten(0, 1) if kept is None else replay.experts[kept]
    return _replaying(routers_in(model), replay, experts)


@contextmanager
def _replaying(routers: Sequence[nn.Module], replay: Replay, experts: Tensor) -> Iterator[None]:
    if experts.shape[1] != len(routers):
        raise NotSupportedError(
            f"tokens were sampled with {experts.shape[1]} routers, and the learner's model has "
            f"{len(routers)}: routing replay needs the same model"
        )
    # A token's routers are recorded together or not at all: its first expert stands for all.
    known = experts[:, 0, 0] >= 0
    changed = torch.zeros_like(known)

    def choose(number: int, own: Tensor) -> Tensor:
        given = experts[:, number]
        different = (given.sort(-1).values != own.sort(-1).values).any(-1)  # in any order
        changed.logical_or_(different & known)
        return torch.where(known[:, None], given, own)

    with _choosing(routers, choose):
        yield
    replay.tokens += int(known.sum())
    replay.changed += int(changed.sum())


@torch.no_grad()
def check_routing(model: Any) -> None:
    """Raise NotSupportedError for a model without routers that choose by one top-k each."""
    name, routers = type(model).__name__, routers_in(model)
    if not routers:
        raise NotSupportedError(
            f"rollout.routing_replay is for mixtures of experts, and {name} is none: leave it out"
        )
    inputs = torch.tensor([ordinary_tokens(model, PROBE)], device=model.device)
    with recorded_experts(routers) as found:
        model(input_ids=inputs, use_cache=False)
    if [len(one) for one in found] != [inputs.numel()] * len(routers):
        raise NotSupportedError(
            f"rollout.routing_replay: the routers of {name} do not choose experts by one top-k of "
            "their own, so that no other choice can be put in its place: leave it out"
        )


@contextmanager
def _choosing(routers: Sequence[nn.Module], choose: Choose) -> Iterator[None]:
    for number, router in enumerate(routers):
        router.forward = partial(_route, router.forward, partial(choose, number))
    try:
        yield
    finally:
        for router in routers:
            del router.forward  # that of its class is seen again


def _route(
    forward: Callable[..., Any], choose: Callable[[Tensor], Tensor], *given: Any, **named: Any
) -> Any:
    with _TopK(choose):
        return forward(*given, **named)


class _TopK(TorchFunctionMode):
    """Takes the values at chosen places, in place of the largest ones."""

    def __init__(self, choose: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self._choose = choose

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        del types
        found = function(*args, **(kwargs or {}))
        if function not in TOP_K:
            return found
        places = self._choose(found.indices)
        return type(found)((args[0].gather(-1, places), places))
