"""A second copy of a model, to sample from while the first one is trained.

Not here: when the copy gets new weights (`training/components.py`).
"""

import copy

from torch import Tensor
from transformers import PreTrainedModel


def copy_to_sample_from(model: PreTrainedModel) -> PreTrainedModel:
    """The model again: weights that are trained are copied, frozen ones (as under adapters) are
    shared."""
    shared = {id(frozen): frozen for frozen in model.parameters() if not frozen.requires_grad}
    return copy.deepcopy(model, shared)


def trained_weights(model: PreTrainedModel) -> dict[str, Tensor]:
    """The weights that training changes, not copied, by their names within the base model."""
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    return {name: weight for name, weight in base.named_parameters() if weight.requires_grad}
