"""Second copies of a model: to sample from while the first one is trained, or to be divided."""

import copy
from typing import Any

from torch import Tensor
from torch.nn import Module, Parameter
from transformers import PreTrainedModel

ADAPTER = "lora_"
"""Part of the names that peft gives adapters."""


def copy_to_sample_from(model: PreTrainedModel) -> PreTrainedModel:
    """The model again: trained weights are copied, frozen ones (as under adapters) shared."""
    shared = {id(frozen): frozen for frozen in model.parameters() if not frozen.requires_grad}
    return copy.deepcopy(model, shared)


def copy_to_divide(model: Module) -> Any:
    """The module again, in the same memory but for adapters: other weights are replaced by parts of
    them."""
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
        name: weight for name, weight in base_of(model).named_parameters() if weight.requires_grad
    }


def base_of(model: PreTrainedModel) -> PreTrainedModel:
    """The model without what its adapters are wrapped in: they are in its layers."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model
