"""Attention by spans of the cache, for a model's own forward pass.

A model of transformers wants keys and values of all rows in one tensor, for which those of
different spans would have to be copied in every layer of every pass. Here PyTorch's function is
called once for each span (`cache.py`), and reads keys and values where they lie.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from transformers import PreTrainedModel
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from turnwise.forward.attention import attending
from turnwise.forward.cache import PoolCache

IN_SPANS = "turnwise_in_spans"
"""Name of the attention function under which transformers finds it."""


@contextmanager
def attention_in_spans(model: PreTrainedModel) -> Iterator[None]:
    """Inside, the model attends by spans of the cache that its forward gets as `pool`; without one
    as ever, so that another thread may run it meanwhile."""
    with attending(model, IN_SPANS, _attend):
        yield


def _attend(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    pool: PoolCache | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """With a pool, what `key` and `value` hold is in it; a model that loses it on the way sees no
    more than that, and is found out."""
    attend = ALL_ATTENTION_FUNCTIONS["sdpa"]
    if pool is None or attention_mask is None:
        # A model that loses `pool` on the way has a mask longer than its keys. Cut to them it runs,
        # and gives numbers that the comparison before a run refuses.
        mask = None if attention_mask is None else attention_mask[..., : key.shape[2]]
        return attend(module, query, key, value, mask, **options)[0], None
    parts = [
        attend(
            module,
            query[span.rows],
            keys,
            values,
            attention_mask[span.rows, ..., : span.length],
            **options,
        )[0]
        for span, keys, values in pool.layers[module.layer_idx].views()
    ]
    return parts[0] if len(parts) == 1 else torch.cat(parts), None
