"""Forward passes over runs of the cache: token ids in, next-token logits out.

Models whose caches are their own run in `own_caches.py`. With spans, PyTorch's attention is called
once for each and reads keys and values where they lie: in one tensor of all rows, as transformers
wants them, they would have to be copied in every layer of every pass.
"""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional
from transformers import PreTrainedModel
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from turnwise.errors import NotSupportedError
from turnwise.forward.attention import attending, evaluating
from turnwise.forward.cache import CacheExtent, Masks, PoolCache, cache_name
from turnwise.forward.images import ImageInputs, ImageReader
from turnwise.forward.small_llama import specialised as written_out


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

    @torch.inference_mode()
    def forward(
        self,
        runs: Sequence[CacheExtent],
        ids: np.ndarray,
        positions: np.ndarray,
        cache: PoolCache | None = None,
        shared: int = 0,
    ) -> torch.Tensor:
        """Logits after the last input of each row, float32[n, vocabulary]; the cache, by default
        the runner's own, keeps keys and values. The first `shared` places hold the same tokens in
        all runs, so that those of one may be read for all; inputs come behind them.

        `ids` and `positions` are int64[n, inputs], right-aligned, on the left with PADDING.
        """
        cache = self.cache if cache is None else cache
        if self._passes is not None:
            return self._passes.forward(cache, runs, ids, positions, shared)
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
        given = {self._cache_name: cache, "position_ids": seen, "use_cache": True}
        # transformers takes a tensor for all layers, or one for each kind of them by name.
        given["attention_mask"] = masks if len(masks) > 1 else masks[self._masks.kinds[0]]
        with evaluating(self._modules):
            return self._logits(ids, **given, **arguments)

    def _logits(self, ids: torch.Tensor, **arguments: Any) -> torch.Tensor:
        """Logits after the last inputs, [n, vocabulary]."""
        logits: torch.Tensor = self.model(input_ids=ids, logits_to_keep=1, **arguments).logits
        return logits[:, -1]

    def _by_spans(
        self,
        ids: torch.Tensor,
        seen: torch.Tensor,
        masks: Mapping[str, torch.Tensor],
        cache: PoolCache,
    ) -> torch.Tensor:
        # Without a pool it attends as ever: another thread may run the model meanwhile.
        with attending(self.model, IN_SPANS, attend_in_spans):
            return self._general(ids, seen, masks, cache, pool=cache)


def _check_spans(model: PreTrainedModel) -> None:
    """Refuse models without PyTorch's attention, or that pass on no arguments, such as the pool."""
    name, parameters = type(model).__name__, inspect.signature(model.forward).parameters.values()
    if model.config._attn_implementation != "sdpa":
        raise NotSupportedError(f"{name} has no PyTorch attention")
    if not any(parameter.kind == parameter.VAR_KEYWORD for parameter in parameters):
        raise NotSupportedError(f"{name} passes nothing on to its attention")


IN_SPANS = "turnwise_in_spans"
"""Name of the attention function under which transformers finds it."""


def attend_in_spans(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    pool: PoolCache | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """With a pool, keys and values are in it; a model that loses it is found out."""
    attend = ALL_ATTENTION_FUNCTIONS["sdpa"]
    if pool is None or attention_mask is None:
        # A model that loses `pool` on the way has a mask longer than its keys. Cut to them it runs,
        # and gives numbers that the comparison before a run refuses.
        mask = None if attention_mask is None else attention_mask[..., : key.shape[2]]
        return attend(module, query, key, value, mask, **options)[0], None
    parts = []
    for span, keys, values in pool.layers[module.layer_idx].views():
        seen = attention_mask[span.rows, ..., : span.length]
        parts.append(_attended(module, query[span.rows], keys, values, seen, **options))
    return parts[0] if len(parts) == 1 else torch.cat(parts), None


def _attended(
    module: Any,
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    mask: torch.Tensor,
    **options: Any,
) -> torch.Tensor:
    """The attention over one span, [n, inputs, heads, size]."""
    plain = all(options.get(name) is None for name in ("position_bias", "softcap"))
    grouped, several = query.shape[1] != keys.shape[1], query.shape[2] > 1
    if plain and grouped and several and query.device.type == "cpu":
        # transformers repeats keys and values for each query head: most of the work of such a pass.
        return functional.scaled_dot_product_attention(
            query, keys, values, attn_mask=mask, scale=options.get("scaling"), enable_gqa=True
        ).transpose(1, 2)
    attend = ALL_ATTENTION_FUNCTIONS["sdpa"]
    attended: torch.Tensor = attend(module, query, keys, values, mask, **options)[0]
    return attended


class ImageRunner(Runner):
    """The pass of a model that takes images: its decoder gets features in place of placeholders."""

    def __init__(
        self, model: Any, tokens: int, longest: int, reader: ImageReader, **options: bool
    ) -> None:
        super().__init__(model, tokens, longest, **options)
        self.reader = reader
        self._decoder, self._head = model.get_decoder(), model.get_output_embeddings()
        self._cache_name = str(cache_name(self._decoder))
        self._images: ImageInputs | None = None

    def forward_images(
        self,
        runs: Sequence[CacheExtent],
        ids: NDArray[np.int64],
        positions: NDArray[np.int64],
        shown: ImageInputs | None,
    ) -> torch.Tensor:
        """Compute as `forward` does, with the images that some inputs stand for."""
        self._images = shown
        try:
            return self.forward(runs, ids, positions)
        finally:
            self._images = None

    def _logits(self, ids: torch.Tensor, **arguments: Any) -> torch.Tensor:
        if self._images is None:
            arguments["input_ids"] = ids
        else:
            arguments |= self.reader.arguments(self._decoder, ids, self._images)
        logits: torch.Tensor = self._head(self._decoder(**arguments).last_hidden_state[:, -1])
        return logits
