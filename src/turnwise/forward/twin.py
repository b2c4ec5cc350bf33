"""A model's twin: the same model with weights drawn from a fixed seed, on which ways are compared.

Which of several ways computes a model is decided on its twin, and so by the configuration, the
recipe and the machine alone: a run that is resumed with any other weights goes the way it went.
"""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from turnwise.forward.equality import FOREIGN_ERRORS, PROBE, ordinary_tokens, own_logprobs

FEWEST = 2
"""Layers that a shallow twin keeps at least, so that each still reads what another one wrote."""
PLACE = ("layer_idx", "layer_id", "layer_number", "layer_index")
"""Parts of the names under which layers keep their place, which makes them no kind of their own."""
FURTHEST = 8.0
"""The largest gate: its logistic function is 3e-4 from 0 or 1, where codes that bound it differ."""


# Tensors made in inference mode could never be differentiated, nor changed outside of it.
@torch.inference_mode(False)
@torch.no_grad()
def twin_of(model: Any) -> Any:
    """A copy of the model, hooks included, with drawn weights, in evaluation mode. Products keep
    the size of their inputs, norms scale by 0.5 to 1.5 in either direction, biases are as large,
    and gates (decays, steps of time, sinks) go from -FURTHEST to FURTHEST."""
    return _drawn(_copied(model, []))


@torch.inference_mode(False)
@torch.no_grad()
def shallow_twin_of(model: Any) -> Any:
    """A twin with a model's first layers alone, up to where each kind has come: how a model
    computes is in the code of its layers, not in their number."""
    settings = model.config.get_text_config()
    count: int = getattr(settings, "num_hidden_layers", 0)
    names = [name for name, part in model.named_modules() if _is_stack(part, count)]
    stacks = [model.get_submodule(name) for name in names]
    lists = [name for name, value in vars(settings).items() if _has_each(value, count)]
    kept = _until_all_kinds(stacks, [getattr(settings, name) for name in lists])
    if not stacks or kept >= count:
        return twin_of(model)
    twin = _copied(model, [layer for stack in stacks for layer in stack[kept:]])
    for name in names:
        del twin.get_submodule(name)[kept:]
    settings = twin.config.get_text_config()
    settings.num_hidden_layers = kept
    for name in lists:
        setattr(settings, name, getattr(settings, name)[:kept])
    return _drawn(twin)


def _until_all_kinds(stacks: Sequence[Any], lists: Sequence[Any]) -> int:
    layers = zip(*stacks, strict=True)
    kinds = [
        (list(map(_kind, several)), [values[place] for values in lists])
        for place, several in enumerate(layers)
    ]
    # `index` finds the first layer of each kind; with the last of these all kinds are there.
    return max([FEWEST, *(kinds.index(kind) + 1 for kind in kinds)])


def _copied(model: Any, without: Sequence[nn.Module]) -> Any:
    """Copy the model, with empty modules in the place of those of `without`."""
    # What deepcopy finds in its memo it does not copy: gradients become None, and the layers that
    # are left out something empty, before a large model is in memory twice.
    known: dict[int, Any] = {id(weight.grad): None for weight in model.parameters()}
    known |= {id(part): nn.Identity() for part in without}
    return copy.deepcopy(model, known).eval()


def _drawn(twin: Any) -> Any:
    """Draw other weights, in place, all where the first ones are. Gates are ordinary numbers where
    large ones overflow, as where their products are added up in an exponential."""
    for furthest in (FURTHEST, 1.0):
        gates = _draw(twin, furthest)
        twin.to(next(twin.parameters()).device)
        if not gates or _computes(twin):
            break
    return twin


def _draw(twin: Any, furthest: float) -> int:
    # Drawn on the processor, so that every device gets the same numbers.
    generator, gates = torch.Generator().manual_seed(0), 0
    for name, weight in twin.named_parameters():
        if weight.ndim > 1:
            drawn = torch.randn(weight.shape, generator=generator, dtype=torch.float32)
            # Sums of so many terms are then as large as what goes in.
            drawn *= weight.shape[-1] ** -0.5
        elif name.rpartition(".")[2] in ("weight", "bias"):
            drawn = 2 * torch.rand(weight.shape, generator=generator, dtype=torch.float32) - 1
            # 0.5 to 1.5 in size: a scale near 0 would hide what it multiplies.
            drawn += drawn.sign() / 2
        else:
            gates += 1
            # All sizes of a gate are there, however few gates there are, and in no order.
            each = torch.linspace(-furthest, furthest, weight.numel())
            drawn = each[torch.randperm(len(each), generator=generator)].view(weight.shape)
        weight.copy_(drawn)
    return gates


def _computes(twin: Any) -> bool:
    """Whether numbers come out; True where the model cannot be asked in this way."""
    try:
        return not own_logprobs(twin, ordinary_tokens(twin, PROBE), 1).isnan().any()
    except FOREIGN_ERRORS:
        return True


def _is_stack(part: nn.Module, count: int) -> bool:
    """Whether it is the list of a decoder's layers, which know their place in the cache."""
    if not isinstance(part, nn.ModuleList) or len(part) != count:
        return False
    return all(any("layer_idx" in vars(one) for one in layer.modules()) for layer in part)


def _has_each(value: Any, count: int) -> bool:
    return isinstance(value, list | tuple) and len(value) == count


def _kind(layer: nn.Module) -> list[Any]:
    """The features by which layers differ: parts, sizes and settings."""
    shapes = [(name, tuple(weight.shape)) for name, weight in layer.named_parameters()]
    settings = [(name, type(part), _settings(part)) for name, part in layer.named_modules()]
    return [shapes, settings]


def _settings(part: nn.Module) -> dict[str, Any]:
    """Attributes that make a kind; fractions do not: some follow from a layer's place."""
    given = {name: one for name, one in vars(part).items() if isinstance(one, bool | int | str)}
    return {name: one for name, one in given.items() if not any(word in name for word in PLACE)}
