"""The number by which a model multiplies its logits: Granite's and Cohere's scale, MiniCPM3's.

Configurations name such a number, but one says by which to multiply and another by which to divide
under the same name. So it is the one of these that gives the model's own logits.
"""

from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from turnwise.forward.equality import PROBE, ordinary_tokens
from turnwise.forward.hidden import last_hidden

_found: WeakKeyDictionary[Any, float] = WeakKeyDictionary()
"""The factor of each model; it is chosen among a few numbers, whatever the weights."""


def logit_factor(base: Any) -> float:
    """Find the factor of a transformers model (not wrapped by peft); 1 where its configuration
    names none."""
    named = _named(base)
    if named == [1.0]:
        return 1.0
    if base not in _found:
        _found[base] = _nearest(base, named)
    return _found[base]


def softcapping(base: Any) -> float | None:
    """Gemma's bound on logits: cap tanh(logits / cap); None for other models."""
    settings = base.config.get_text_config()
    caps = (
        getattr(settings, name, None) for name in ("final_logit_softcapping", "logits_soft_cap")
    )
    return next((float(cap) for cap in caps if cap is not None), None)


def bounded(logits: Tensor, cap: float | None) -> Tensor:
    return logits if cap is None else cap * torch.tanh(logits / cap)


def _named(base: Any) -> list[float]:
    settings = base.config.get_text_config()
    values = {
        float(value)
        for name, value in settings.to_dict().items()
        if ("logit" in name or "lm_head" in name) and "cap" not in name and _is_positive(value)
    }
    if _is_positive(getattr(settings, "dim_model_base", None)):
        values.add(settings.dim_model_base / settings.hidden_size)
    return sorted({1.0, *values, *(1 / value for value in values)})


def _is_positive(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


@torch.inference_mode(False)
@torch.no_grad()
def _nearest(base: Any, named: list[float]) -> float:
    inputs = torch.tensor([ordinary_tokens(base, PROBE)], device=base.device)
    head = base.get_output_embeddings()
    states = last_hidden(base, inputs, autocast=False)[0]
    plain = head(states.to(head.weight.dtype)).float()
    own = base(input_ids=inputs, use_cache=False).logits[0].float()
    cap = softcapping(base)
    distances = [float((bounded(plain * factor, cap) - own).norm()) for factor in named]
    return named[distances.index(min(distances))]
