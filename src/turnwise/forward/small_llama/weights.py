"""Recognition of models whose shape turnwise writes out for itself (`prefill.py`,
`training.py`), and how they turn heads."""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import LlamaForCausalLM, PreTrainedModel, Qwen3ForCausalLM

FIXED_ROTATIONS = ("default", "linear", "llama3", "yarn")
"""Rotary embeddings that do not change with the length of the text."""
LARGEST = 1 << 26
"""Parameters. Above it matrix products dominate, and a second copy of the weights costs more than
it gains."""
DTYPES = (torch.float32, torch.bfloat16)


def is_plain(model: PreTrainedModel) -> bool:
    """Whether the model is small and has the parts of Llama or Qwen3, and no others."""
    if type(model) not in (LlamaForCausalLM, Qwen3ForCausalLM) or model.dtype not in DTYPES:
        return False
    if model.num_parameters() > LARGEST or model.config.hidden_act != "silu":
        return False
    if model.model.rotary_emb.rope_type not in FIXED_ROTATIONS:
        return False
    if any(map(_is_changed, [model.model, *model.model.layers.modules()])):
        return False
    products = [model.lm_head, *(m for m in model.model.layers.modules() if hasattr(m, "weight"))]
    products = [module for module in products if module.weight.ndim == 2]
    return all(type(module) is nn.Linear and module.bias is None for module in products)


def may_compile(model: Any) -> bool:
    """Whether compiled kernels may compute the model: the recipe's `model.kernels`, noted on it
    when it was loaded. They can be switched off for the whole process, too
    (`forward/kernels/compiler.py`)."""
    return getattr(model, "kernels", "auto") == "auto"


def _is_changed(module: nn.Module) -> bool:
    """Whether a module runs code from outside transformers: a class from elsewhere, or a hook."""
    own = type(module).__module__.startswith(("torch.nn.modules.", "transformers."))
    hooks = module._forward_hooks or module._forward_pre_hooks
    backward = module._backward_hooks or module._backward_pre_hooks
    return not own or bool(hooks or backward) or "forward" in vars(module)


@torch.no_grad()
def rotation(model: Any, tokens: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines of every position of a plain model, float32[tokens, size]; the sines of
    the first half are negative, so that a head is turned to head * cosines + (its halves exchanged)
    * sines."""
    places = torch.arange(tokens, device=model.device)[None]
    like = torch.zeros(1, dtype=torch.float32, device=model.device)
    cosines, sines = (part[0] for part in model.model.rotary_emb(like, places))
    first, second = sines.chunk(2, -1)
    return cosines.contiguous(), torch.cat([-first, second], -1)
