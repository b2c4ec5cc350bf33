"""Second copies of a model, to sample from while the first one is trained or to be divided; and
models whose weights stay in files that this process maps, and holds in no memory of its own.

On a processor a pass reads what it needs of the files, which the system may forget again; on a GPU
the weights of each layer are there while it computes, and only those beside the layers always.
Nothing writes into such weights: new ones are other files.
"""

import copy
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import Module, Parameter
from transformers import PreTrainedModel

from turnwise.forward.hidden import base_model

ADAPTER = "lora_"
"""Part of the names that peft gives adapters."""


def copy_to_sample_from(model: PreTrainedModel) -> PreTrainedModel:
    """The model again: trained weights are copied, frozen ones (as under adapters) shared."""
    shared = {id(frozen): frozen for frozen in model.parameters() if not frozen.requires_grad}
    return copy.deepcopy(model, shared)


def copy_to_divide(model: Module) -> Any:
    """The module again, in the same memory but for adapters; ranks replace weights by parts."""
    apart = adapters_of(model)
    shared: dict[int, Any] = {
        id(weight): Parameter(weight.detach(), requires_grad=weight.requires_grad)
        for weight in model.parameters()
        if weight not in apart
    }
    return copy.deepcopy(model, shared)


def adapters_of(model: Module) -> set[Parameter]:
    """The weights that are trained, where all of them are adapters."""
    trained = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    return set(trained.values()) if all(ADAPTER in name for name in trained) else set()


def trained_weights(model: PreTrainedModel) -> dict[str, Tensor]:
    """The weights that training changes, not copied, by their names within the base model."""
    return {
        name: weight
        for name, weight in base_model(model).named_parameters()
        if weight.requires_grad
    }


def keep_in_files(model: PreTrainedModel, device: torch.device) -> None:
    """Let a model just loaded, on the processor, compute on a device, its weights in files."""
    model.in_files = True
    if device.type == "cpu":
        return
    device = torch.empty(0, device=device).device  # with its number
    layers = layers_of(model)
    own = {id(tensor) for layer in layers for tensor in _tensors(layer)}
    for tensor in _tensors(model):
        if id(tensor) not in own:
            tensor.data = tensor.data.to(device)
    for layer in layers:
        visit = _Visit(device)
        layer.register_forward_pre_hook(visit.begin)
        layer.register_forward_hook(visit.end, always_call=True)  # after an error too


def is_in_files(model: Any) -> bool:
    """Whether the model, or the one that its adapters are around, was loaded to stay in files."""
    return getattr(model, "in_files", False)


def map_weights(model: nn.Module, folder: Path) -> None:
    """Give the model a folder's weights, by its own names; the files may be deleted then. Raises
    SafetensorError, and OSError also for a missing weight."""
    found: dict[str, Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        found |= load_file(file)
    _give(model, found)


def put_weights(model: nn.Module, other: nn.Module) -> None:
    """Give a model another one's weights, in its own memory unless they stay in files."""
    give = _give if is_in_files(model) else nn.Module.load_state_dict
    give(model, other.state_dict())


def _give(model: nn.Module, found: Mapping[str, Tensor]) -> None:
    """Give the model what its state dict has, tied weights once; OSError for a missing one."""
    kept = model.state_dict().keys()
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if name in kept:
            if name not in found:
                raise OSError(f"weight {name} is missing")
            # The file's own tensor, where it is mapped: a copy would take memory.
            tensor.data = found[name].to(tensor.device)


def layers_of(model: nn.Module) -> list[nn.Module]:
    """The layers that transformers says are never to be split."""
    models = [part for part in model.modules() if isinstance(part, PreTrainedModel)]
    kept = {name for part in models for name in part._no_split_modules or ()}
    return [part for part in model.modules() if type(part).__name__ in kept]


class _Visit:
    """The hooks of a layer whose weights are on a device while it computes, a thread at a time."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._away: list[tuple[Tensor, Tensor]] = []
        self._alone = threading.Lock()

    def __deepcopy__(self, memo: dict[int, Any]) -> "_Visit":
        return _Visit(self._device)  # no lock can be copied

    def begin(self, layer: nn.Module, *_: Any) -> None:
        self._alone.acquire()
        away = (tensor for tensor in _tensors(layer) if tensor.device != self._device)
        self._away = [(tensor, tensor.data) for tensor in away]
        for tensor, data in self._away:
            tensor.data = data.to(self._device)

    def end(self, *_: Any) -> None:
        for tensor, data in self._away:
            tensor.data = data
        self._away = []
        self._alone.release()


def _tensors(part: nn.Module) -> list[Tensor]:
    return [*part.parameters(), *part.buffers()]
