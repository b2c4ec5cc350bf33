"""What a model's layers say of given tokens: the model's own, or those that are written out.

A small Llama or Qwen3 in float32 on a CPU runs through `body.py`, if that is seen to give what its
own layers give, and their gradients; every other model through its own. Not here: the output layer
(`logprobs.py`).
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from turnwise.errors import NotSupportedError
from turnwise.kernels.shape import Shape
from turnwise.kernels.training import TrainingKernels, training_kernels
from turnwise.learning.attention import attention_in_float32
from turnwise.learning.body import Rows, asked_hidden
from turnwise.models.plain import is_plain
from turnwise.models.vision import reader_of
from turnwise.types import Picture

Pictures = Sequence[Sequence[Picture]]
"""Of each row of a batch, in order; without any row where there are no pictures at all."""
PROBE = (2, 70)
"""Texts and tokens of each on which layers are compared: more than kernels take at once."""
TOLERANCE = 1e-3
"""How far hidden states and gradients in float32 may be from those of the model's own layers, as a
part of these."""
LOWER = 2.0
"""Those in bfloat16 may be so many times as far from float32's as the model's own are."""

logger = logging.getLogger(__name__)
_fitting: WeakKeyDictionary[Any, dict[torch.dtype, bool]] = WeakKeyDictionary()
"""Which models have been found to fit, or not, by the type of the products' numbers."""


def hidden_states(
    model: nn.Module,
    inputs: Tensor,
    selected: Tensor,
    autocast: bool,
    pictures: Pictures = (),
) -> Tensor:
    """[N, width]: what the body says at the selected positions; arguments as `token_logprobs`."""
    base = base_model(model)
    arguments = inputs_of(base, decoder_of(base), inputs, pictures)
    kernels = fitting_kernels(model, autocast)
    if kernels is not None and selected.any():
        return asked_hidden(base, kernels, Rows.of(inputs, selected))
    return last_hidden(model, inputs, autocast, **arguments)[selected]


def last_hidden(model: nn.Module, inputs: Tensor, autocast: bool, **arguments: Any) -> Tensor:
    """What the model's own layers make of int64[B, T] inputs, [B, T, width]; `arguments` are
    theirs, with `inputs_embeds` in place of the inputs if they are among them."""
    base = base_model(model)
    body = decoder_of(base)
    if "inputs_embeds" not in arguments:
        arguments["input_ids"] = inputs
    lower = torch.autocast(inputs.device.type, torch.bfloat16, enabled=autocast)
    with lower, attention_in_float32(base) if autocast else nullcontext():
        hidden: Tensor = body(use_cache=False, **arguments).last_hidden_state
    return hidden


def inputs_of(model: Any, decoder: Any, inputs: Tensor, pictures: Pictures) -> dict[str, Any]:
    """What a decoder's forward gets so that it sees the pictures that placeholders of int64[B, T]
    inputs stand for; nothing where there are none. `model` has the reader. Raises NotSupportedError
    for a model that takes no pictures."""
    if not any(pictures):
        return {}
    reader = reader_of(model)
    if reader is None:
        raise NotSupportedError(f"{type(model).__name__} takes no pictures")
    return reader.arguments(decoder, inputs, reader.shown(inputs.cpu().numpy(), pictures))


def base_model(model: nn.Module) -> Any:
    """The transformers model itself: what peft wraps (its adapters are inside the layers)."""
    unwrap = getattr(model, "get_base_model", None)
    return model if unwrap is None else unwrap()


def decoder_of(base: Any) -> Any:
    """The part of a transformers model that is before its output layer. Some classes say that they
    are it themselves; then it is the part that has their embeddings."""
    decoder = base.get_decoder()
    if decoder is not base or base.get_output_embeddings() is None:
        return decoder
    embedding = base.get_input_embeddings()
    parts = [part for part in base.children() if embedding in part.modules()]
    return parts[0] if len(parts) == 1 else base


def fitting_kernels(model: nn.Module, autocast: bool) -> TrainingKernels | None:
    """With which a model's layers are written out; None for those that run as they are."""
    base = base_model(model)
    if not _may_fit(base):
        return None
    attention = base.model.layers[0].self_attn
    heads = base.config.num_attention_heads, base.config.num_key_value_heads
    dtype = torch.bfloat16 if autocast else torch.float32
    kernels = training_kernels(Shape(*heads, attention.head_dim, dtype))
    if kernels is None:
        return None
    known = _fitting.setdefault(base, {})
    if dtype not in known:
        agree = _agrees(base, kernels)
        if agree is None:
            return None
        known[dtype] = agree
        if not agree:
            logger.warning("compiled layers do not give what the model's give: they are not used")
    return kernels if known[dtype] else None


def _may_fit(base: Any) -> bool:
    """Whether it has the parts that are written out, as it is now: adapters may have come."""
    if not is_plain(base) or base.device.type != "cpu":
        return False
    if getattr(base, "is_activation_checkpointing", False):
        return False
    if any(weights.dtype != torch.float32 for weights in base.parameters()):
        return False
    if any(map(_is_changed, [base.model, *base.model.layers.modules()])):
        return False
    attention = [layer.self_attn for layer in base.model.layers]
    windowed = any(getattr(one, "sliding_window", None) is not None for one in attention)
    return not windowed and not base.config.attention_dropout


def _is_changed(module: nn.Module) -> bool:
    """Whether somebody else's code runs when it is called: a class of theirs, or a hook."""
    own = type(module).__module__.startswith(("torch.nn.modules.", "transformers."))
    hooks = module._forward_hooks or module._forward_pre_hooks
    backward = module._backward_hooks or module._backward_pre_hooks
    return not own or bool(hooks or backward) or "forward" in vars(module)


@torch.inference_mode(False)
def _agrees(base: Any, kernels: TrainingKernels) -> bool | None:
    """Whether hidden states and gradients are those of the model's own layers; in bfloat16, whether
    they are about as near to those in float32. None where these are no numbers: who knows."""
    vocabulary, _ = base.get_input_embeddings().weight.shape
    texts, tokens = PROBE
    inputs = (torch.arange(texts * tokens) * 7 % vocabulary).view(texts, tokens)
    selected = torch.arange(tokens).expand(texts, tokens) % 3 > 0

    def own(autocast: bool) -> Tensor:
        return last_hidden(base, inputs, autocast)[selected]

    def compiled() -> Tensor:
        return asked_hidden(base, kernels, Rows.of(inputs, selected))

    exact = _probed(base, lambda: own(False))
    if not all(part.isfinite().all() for part in exact):
        return None
    bound = TOLERANCE
    if kernels.dtype != torch.float32:
        bound = LOWER * _distance(_probed(base, lambda: own(True)), exact)
    return _distance(_probed(base, compiled), exact) <= bound


def _probed(base: Any, hidden: Callable[[], Tensor]) -> tuple[Tensor, Tensor]:
    """Hidden states [n, width], and the gradient of some sum of them by all weights, [weights]."""
    weights = [weight for weight in base.parameters() if weight.requires_grad]
    exactly = torch.autocast("cpu", enabled=False)
    with torch.inference_mode(False), torch.enable_grad(), exactly:
        found = hidden()
        if not found.requires_grad or not weights:
            return found.detach(), found.new_ones(1)
        total = (found * torch.linspace(-1, 1, found.numel()).view_as(found)).sum()
        gradients = torch.autograd.grad(total, weights, materialize_grads=True)
    return found.detach(), torch.cat([part.flatten() for part in gradients])


def _distance(found: tuple[Tensor, Tensor], exact: tuple[Tensor, Tensor]) -> float:
    """Of the two, the larger one as a part of the exact one."""
    parts = [(one - other).norm() / other.norm() for one, other in zip(found, exact, strict=True)]
    return float(max(parts))
