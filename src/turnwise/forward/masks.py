"""Attention masks of a forward pass over the pool: the keys that each input sees."""

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from turnwise.errors import ConfigError, NotSupportedError
from turnwise.forward.cache import CacheExtent, PoolCache

FULL = "full_attention"
SLIDING = "sliding_attention"


class Masks:
    """The masks of a model's layers, one for each of its `kinds` of attention.

    Raises ConfigError for attention that takes no mask, NotSupportedError for layers of another
    kind.
    """

    def __init__(self, model: PreTrainedModel, dtype: torch.dtype) -> None:
        settings = model.config.get_text_config()
        self.kinds = _attention_kinds(model, settings)
        self.window: int = getattr(settings, "sliding_window", None) or 0
        self._model, self._dtype = model, dtype

    def inputs(
        self, cache: PoolCache, runs: Sequence[CacheExtent], ids: np.ndarray, positions: np.ndarray
    ) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Place a pass's inputs; they, their positions, and the additive masks of each kind, [n, 1,
        inputs, length]."""
        device = self._model.device
        placement = cache.place(runs, positions, device)
        seen = torch.from_numpy(np.maximum(positions, 0)).to(device)
        queries, keys = seen[:, None, :, None], torch.arange(placement.length, device=device)
        masks = {kind: self._mask(kind, queries, keys) for kind in self.kinds}
        return torch.from_numpy(ids).to(device), seen, masks

    def _mask(self, kind: str, queries: Tensor, keys: Tensor) -> Tensor:
        hidden = keys > queries
        if kind == SLIDING:
            hidden |= keys <= queries - self.window
        mask = torch.zeros(hidden.shape, dtype=self._dtype, device=keys.device)
        return mask.masked_fill_(hidden, torch.finfo(self._dtype).min)


def _attention_kinds(model: PreTrainedModel, settings: Any) -> tuple[str, ...]:
    name = type(model).__name__
    implementation = model.config._attn_implementation
    if implementation not in ("sdpa", "eager"):
        raise ConfigError(
            f"the embedded engine cannot run {name} with {implementation!r} attention: "
            "load it with attn_implementation='sdpa' or 'eager'"
        )
    if "position_ids" not in inspect.signature(model.forward).parameters:
        raise NotSupportedError(f"{name} takes no position_ids")
    types = getattr(settings, "layer_types", None)
    if types is None:
        types = [FULL if getattr(settings, "sliding_window", None) is None else SLIDING]
    unknown = sorted(set(types) - {FULL, SLIDING})
    if unknown:
        raise NotSupportedError(f"{name} has {unknown[0]} layers, which are not masked here")
    return tuple(sorted(set(types)))
