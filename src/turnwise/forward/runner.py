"""Forward passes over runs of the cache: token ids in, next-token logits out.

Models whose caches are their own run in `own_caches.py`.
"""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from turnwise.errors import NotSupportedError
from turnwise.forward.attention import evaluating
from turnwise.forward.cache import CacheExtent, PoolCache
from turnwise.forward.cache_names import cache_name
from turnwise.forward.masks import Masks
from turnwise.forward.small_llama import specialised as written_out
from turnwise.forward.span_attention import attention_in_spans


class Runner:
    """The model, and a cache of `tokens` tokens in all, for histories of at most `longest`.

    Where it may be `specialised`, a small model of a known shape runs through `small_llama`; every
    other one through its own forward. With `spans` its own attention reads the pool where it is.
    Raises NotSupportedError for a model whose attention is not masked here or has no spans.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokens: int,
        longest: int,
        spans: bool = False,
        specialised: bool = True,
    ) -> None:
        self.model = model
        self._cache_name = str(cache_name(model))
        self._masks = Masks(model, model.dtype)
        self._modules = list(model.modules())
        self._layers: int = model.config.get_text_config().num_hidden_layers
        self._passes = written_out(model, longest, self._masks) if specialised else None
        if spans:
            _check_spans(model)
        self._own = self._by_spans if spans else self._general
        self.cache = PoolCache(self._layers, tokens, spans)

    @property
    def by_spans(self) -> bool:
        return self.cache.by_spans

    @property
    def specialised(self) -> bool:
        return self._passes is not None

    def refresh(self) -> None:
        if self._passes is not None:
            self._passes.refresh()

    def forward(
        self, runs: Sequence[CacheExtent], ids: np.ndarray, positions: np.ndarray
    ) -> torch.Tensor:
        """Logits after the last input of each row, float32[n, vocabulary]; the cache keeps keys and
        values.

        `ids` and `positions` are int64[n, inputs], right-aligned, with PADDING positions on the
        left.
        """
        return self.forward_on(self.cache, runs, ids, positions)

    @torch.inference_mode()
    def forward_on(
        self, cache: PoolCache, runs: Sequence[CacheExtent], ids: np.ndarray, positions: np.ndarray
    ) -> torch.Tensor:
        if self._passes is not None:
            return self._passes.forward(cache, runs, ids, positions)
        return self._own(*self._masks.inputs(cache, runs, ids, positions), cache).float()

    def empty_cache(self, tokens: int) -> PoolCache:
        return PoolCache(self._layers, tokens, self.by_spans)

    def _general(
        self,
        ids: torch.Tensor,
        seen: torch.Tensor,
        masks: Mapping[str, torch.Tensor],
        cache: PoolCache,
        **arguments: Any,
    ) -> torch.Tensor:
        """The model's own forward pass; `arguments` are for its attention."""
        with evaluating(self._modules):
            output = self.model(
                input_ids=ids,
                attention_mask=masks if len(masks) > 1 else masks[self._masks.kinds[0]],
                position_ids=seen,
                use_cache=True,
                logits_to_keep=1,
                **{self._cache_name: cache},
                **arguments,
            )
        logits: torch.Tensor = output.logits[:, -1]
        return logits

    def _by_spans(
        self,
        ids: torch.Tensor,
        seen: torch.Tensor,
        masks: Mapping[str, torch.Tensor],
        cache: PoolCache,
    ) -> torch.Tensor:
        with attention_in_spans(self.model):
            return self._general(ids, seen, masks, cache, pool=cache)


def _check_spans(model: PreTrainedModel) -> None:
    """Refuse models without PyTorch's attention, or that pass on no arguments, such as the pool."""
    name, parameters = type(model).__name__, inspect.signature(model.forward).parameters.values()
    if model.config._attn_implementation != "sdpa":
        raise NotSupportedError(f"{name} has no PyTorch attention")
    if not any(parameter.kind == parameter.VAR_KEYWORD for parameter in parameters):
        raise NotSupportedError(f"{name} passes nothing on to its attention")
