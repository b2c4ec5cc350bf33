"""A small model of the shapes of Llama and Qwen3: which models are one, and what their layers hold.

The one description for all passes of this package, which read weights, sizes and rotations here.
Not here: the order in which a pass has numbers in memory.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import LlamaForCausalLM, PreTrainedModel, Qwen3ForCausalLM

from turnwise.forward.kernels.shape import Shape
from turnwise.forward.masks import FULL, SLIDING

FIXED_ROTATIONS = ("default", "linear", "llama3", "yarn")
"""Rotary embeddings that do not change with the length of the text."""
LARGEST = 1 << 26
"""Parameters. Above it matrix products dominate, and a second copy of the weights costs more than
it gains."""
DTYPES = (torch.float32, torch.bfloat16)


def is_small_llama(model: PreTrainedModel) -> bool:
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


def may_train(model: Any) -> bool:
    """Whether compiled kernels may train the model as it is now: adapters may have come."""
    if not is_small_llama(model) or model.device.type != "cpu" or not may_compile(model):
        return False
    if getattr(model, "is_activation_checkpointing", False):
        return False
    if any(weights.dtype != torch.float32 for weights in model.parameters()):
        return False
    return SLIDING not in layer_kinds(model) and not model.config.attention_dropout


def _is_changed(module: nn.Module) -> bool:
    """Whether a module runs code from outside transformers: a class from elsewhere, or a hook."""
    own = type(module).__module__.startswith(("torch.nn.modules.", "transformers."))
    hooks = module._forward_hooks or module._forward_pre_hooks
    backward = module._backward_hooks or module._backward_pre_hooks
    return not own or bool(hooks or backward) or "forward" in vars(module)


class Products(NamedTuple):
    """A layer's matrices as they are multiplied, [outputs, inputs]."""

    packed: Tensor
    """[(heads + 2 key heads) * size, width]: queries, keys, values."""
    output: Tensor
    gate_up: Tensor
    """[2 * inner, width]"""
    down: Tensor


class LayerWeights(NamedTuple):
    """The weights of a layer: [width] of norms, [outputs, inputs] of products."""

    first_norm: Tensor
    """Before attention."""
    queries: Tensor
    keys: Tensor
    values: Tensor
    query_norm: Tensor | None
    """[size]; None without such norms."""
    key_norm: Tensor | None
    output: Tensor
    second_norm: Tensor
    """Before the feed-forward."""
    gate: Tensor
    up: Tensor
    down: Tensor

    def products(self, dtype: torch.dtype) -> Products:
        """The matrices that read one input side by side, in some type."""
        packed = torch.cat([self.queries, self.keys, self.values])
        gate_up = torch.cat([self.gate, self.up])
        return Products(*(part.to(dtype) for part in (packed, self.output, gate_up, self.down)))


def layer_weights(model: Any) -> list[LayerWeights]:
    """The model's own tensors, not copied."""
    return [_layer_weights(layer.self_attn, layer.mlp, layer) for layer in model.model.layers]


def layer_kinds(model: Any) -> list[str]:
    """The kind of attention of each layer: full or sliding."""
    attention = [layer.self_attn for layer in model.model.layers]
    windows = [getattr(one, "sliding_window", None) for one in attention]
    return [FULL if window is None else SLIDING for window in windows]


def shape_of(model: Any, dtype: torch.dtype) -> Shape:
    """The shape that kernels are compiled for, with numbers of that type."""
    heads = model.config.num_attention_heads, model.config.num_key_value_heads
    return Shape(*heads, model.model.layers[0].self_attn.head_dim, dtype)


def _layer_weights(attention: Any, feed_forward: Any, layer: Any) -> LayerWeights:
    normed = hasattr(attention, "q_norm")
    return LayerWeights(
        layer.input_layernorm.weight,
        attention.q_proj.weight,
        attention.k_proj.weight,
        attention.v_proj.weight,
        attention.q_norm.weight if normed else None,
        attention.k_norm.weight if normed else None,
        attention.o_proj.weight,
        layer.post_attention_layernorm.weight,
        feed_forward.gate_proj.weight,
        feed_forward.up_proj.weight,
        feed_forward.down_proj.weight,
    )


@torch.no_grad()
def rotation(model: Any, tokens: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines of every position, float32[tokens, size]; the sines of the first half are
    negative, so that a head is turned to head * cosines + (its halves exchanged) * sines."""
    places = torch.arange(tokens, device=model.device)[None]
    like = torch.zeros(1, dtype=torch.float32, device=model.device)
    cosines, sines = (part[0] for part in model.model.rotary_emb(like, places))
    first, second = sines.chunk(2, -1)
    return cosines.contiguous(), torch.cat([-first, second], -1)
