"""Changes of a transformers model's attention: another function for a while, layers computed again,
rotations that stay; and the function of training passes.

That is PyTorch's own; on a CPU in float32, since its gradient in bfloat16 takes twice as long.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

Context = AbstractContextManager[None]
IN_FLOAT32 = "turnwise_in_float32"
"""Name of the attention function under which transformers finds it."""


@contextmanager
def attending(model: Any, name: str, function: Callable[..., Any]) -> Iterator[None]:
    """Inside, the model attends by `function`, transformers' `name`; masks are those of `sdpa`."""
    AttentionInterface.register(name, function)
    AttentionMaskInterface.register(name, sdpa_mask)
    with _named(model.config.get_text_config(), name):
        yield


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Attend as `sdpa`; query [n, heads, inputs, size] gives [n, inputs, heads, size]."""
    sdpa = ALL_ATTENTION_FUNCTIONS["sdpa"]
    if query.device.type != "cpu" or not torch.is_autocast_enabled("cpu"):
        return sdpa(module, query, key, value, attention_mask, **options)[0], None
    with torch.autocast("cpu", enabled=False):
        states = query.float(), key.float(), value.float()
        mixed = sdpa(module, *states, attention_mask, **options)[0]
    return mixed.to(torch.bfloat16), None


def recompute_layers(model: Any) -> None:
    """Recompute a model's layers for their gradients, by the attention they were computed with."""
    same = partial(_recomputing, model.config.get_text_config())
    # transformers has the first name since 5.23, and warns of the second since then.
    newer = getattr(model, "activation_checkpointing_enable", None)
    enable = newer or model.gradient_checkpointing_enable
    enable({"use_reentrant": False, "context_fn": same})


def recomputed(model: nn.Module) -> list[nn.Module]:
    """List the modules that compute their layers again for their gradients."""
    return [
        module for module in model.modules() if getattr(module, "gradient_checkpointing", False)
    ]


def recomputes_alike(model: nn.Module) -> bool:
    """Whether layers that are computed again are so under the same attention function."""
    again: list[Any] = [module._gradient_checkpointing_func for module in recomputed(model)]
    return all("context_fn" in getattr(function, "keywords", ()) for function in again)


def _recomputing(
    settings: Any,
) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    # Asked for when a layer is first computed: its attention function then is the one named here.
    return nullcontext(), _named(settings, settings._attn_implementation)


@contextmanager
def _named(settings: Any, name: str) -> Iterator[None]:
    before = settings._attn_implementation
    settings._attn_implementation = name
    try:
        yield
    finally:
        settings._attn_implementation = before


@contextmanager
def attention_in_float32(base: Any) -> Iterator[None]:
    """Let a model attend by `attend` in place of `sdpa`; not with checkpointed layers."""
    replaceable = base.config.get_text_config()._attn_implementation == "sdpa"
    if not replaceable or recomputed(base):
        yield
        return
    with attending(base, IN_FLOAT32, attend):
        yield


@contextmanager
def evaluating(modules: Sequence[nn.Module]) -> Iterator[None]:
    """Evaluation mode inside, each module's own mode back outside."""
    training = [module for module in modules if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True


FIXED = "default"
"""The type of a module that no longer changes its angles."""


@torch.no_grad()
def fix_rotations(model: Any, longest: int) -> None:
    """Give every rotary embedding, in place, the angles of a text of `longest` tokens for good, as
    vLLM does by its `--max-model-len`; saved models are as before.

    Some models turn their heads by other angles once a text is longer than it was trained on
    (LongRoPE, arXiv 2402.13753: Phi-3 and Phi-4; dynamic NTK scaling), and transformers decides by
    a batch's longest row: rows would depend on neighbours, and cached keys not fit later ones.
    """
    for module in model.modules():
        kinds = getattr(module, "rope_type", None)
        if isinstance(kinds, str) and _changes(kinds):
            _turn(module, longest)
            module.rope_type = FIXED
        elif isinstance(kinds, dict) and any(map(_changes, kinds.values())):
            for layers, kind in kinds.items():
                if _changes(kind):
                    _turn(module, longest, layers)
            module.rope_type = {
                layers: FIXED if _changes(kind) else kind for layers, kind in kinds.items()
            }


def _changes(kind: Any) -> bool:
    return isinstance(kind, str) and (kind == "longrope" or "dynamic" in kind)


def _turn(module: Any, longest: int, *layers: str) -> None:
    device = next(module.buffers()).device
    places = torch.tensor([[longest - 1]], device=device)
    # transformers changes the angles when a module is called with a place so far on.
    module(torch.zeros(1, device=device), places, *layers)
