"""The forward pass of Llama and Qwen3 shapes, written out for models that are small.

In a small model most of a decode step is not arithmetic but dispatch: some 80 operations a layer
where 16 do, of which three matrix products read the same input. Here those are packed into one, and
the last layer computes past its keys and values only what is asked for. A model is run in this way
only if that gives the log-probabilities of its own forward pass on a few tokens. Not here: which
inputs, and what is done with the logits.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from turnwise.forward.cache import PoolCache, PoolLayer
from turnwise.forward.kernels.shape import Shape
from turnwise.forward.small_llama.weights import (
    LayerWeights,
    layer_kinds,
    layer_weights,
    rotation,
    shape_of,
)


@dataclass(frozen=True)
class Layer:
    """Copies of one layer's weights, as they are multiplied: transposed and contiguous, which few
    rows are faster with."""

    kind: str
    """Kind of its attention: full or sliding."""
    first_norm: Tensor
    """[width], before attention."""
    qkv: Tensor
    """[width, (heads + 2 key heads) * size]"""
    head_norm: Tensor | None
    """float32[heads + key heads, size], of queries and keys; None without such norms."""
    output: Tensor
    """[heads * size, width]"""
    second_norm: Tensor
    """[width], before the feed-forward."""
    gate_up: Tensor
    """[width, 2 * inner]"""
    down: Tensor
    """[inner, width]"""


class Prefill:
    """Next-token logits of a model, through a PoolCache. `refresh` it when the weights changed.

    `tokens` is the longest history. The model must be one of `is_small_llama`. With another
    `dtype` than the model's the layers are computed in that; the last norm and the output layer,
    to which log-probabilities owe most of their precision, keep the model's.
    """

    def __init__(self, model: Any, tokens: int, dtype: torch.dtype | None = None) -> None:
        self._model, self._given = model, model.dtype
        self.shape = shape_of(model, dtype or model.dtype)
        self.epsilon: float = model.config.rms_norm_eps
        self.rotation = rotation(model, tokens)
        self.refresh()

    @torch.no_grad()
    def refresh(self) -> None:
        """Copy the weights as they are now: until the next time, nothing changes here. Raises
        RuntimeError for a model whose weights have become numbers of another type."""
        if self._model.dtype != self._given:
            raise RuntimeError(f"the model was {self._given}, and is {self._model.dtype} now")
        body, dtype = self._model.model, self.shape.dtype
        described = zip(layer_weights(self._model), layer_kinds(self._model), strict=True)
        self.layers = [_packed(weights, kind, self.shape) for weights, kind in described]
        self.embedding = _copied(body.embed_tokens.weight, dtype)
        self.last_norm = _copied(body.norm.weight, self._given)
        self.head = self._model.lm_head.weight.detach().t().contiguous()

    def forward(
        self, ids: Tensor, seen: Tensor, masks: Mapping[str, Tensor], cache: PoolCache
    ) -> Tensor:
        """Logits after the last input of each row, [n, vocabulary].

        `ids` and `seen`, the positions, are int64[n, inputs]; `masks` are additive, for each kind
        of layer [n, 1, inputs, length]. The cache knows already where the inputs are placed.
        """
        count, inputs = ids.shape
        places = seen.view(-1)
        cosines, sines = (part[places][:, None] for part in self.rotation)
        hidden = functional.embedding(ids.view(-1), self.embedding)
        for layer, pool in zip(self.layers, cache.layers, strict=True):
            queries, keys, values = self._project(layer, hidden, cosines, sines)
            pool.write(_by_head(keys, count), _by_head(values, count))
            mask = masks[layer.kind]
            if layer is self.layers[-1]:
                last = slice(inputs - 1, None, inputs)
                hidden, queries, mask = hidden[last], queries[last], mask[:, :, -1:]
            attended = self._attend(queries, mask, pool)
            hidden = self._mix(layer, hidden, attended)
        return self.logits(self._norm(hidden.to(self._given), self.last_norm))

    def logits(self, hidden: Tensor) -> Tensor:
        """[n, vocabulary], of what the last norm gives for each row, [n, width]."""
        return torch.mm(hidden.to(self._given), self.head)

    def _project(
        self, layer: Layer, hidden: Tensor, cosines: Tensor, sines: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, [inputs, heads, size] each, from hidden [inputs, width]."""
        shape = self.shape
        packed = torch.mm(self._norm(hidden, layer.first_norm), layer.qkv)
        every = packed.view(len(hidden), -1, shape.size)
        turned = shape.heads + shape.key_heads
        heads, values = every[:, :turned], every[:, turned:]
        if layer.head_norm is not None:
            heads = self._norm(heads) * layer.head_norm
        heads = torch.addcmul(heads * cosines, heads.roll(shape.size // 2, -1), sines)
        heads = heads.to(hidden.dtype)
        return heads[:, : shape.heads], heads[:, shape.heads :], values

    def _attend(self, queries: Tensor, mask: Tensor, pool: PoolLayer) -> Tensor:
        """[inputs of all rows, heads * size]. Query heads that share a key head are one longer
        query, so keys are not repeated."""
        count, groups = len(mask), self.shape.heads // self.shape.key_heads
        length = len(queries) // count
        grouped = queries.view(count, length, -1, groups, self.shape.size).permute(0, 2, 3, 1, 4)
        grouped = grouped.flatten(2, 3)
        if groups > 1 and length > 1:
            mask = mask.repeat(1, 1, groups, 1)
        parts = [
            functional.scaled_dot_product_attention(
                grouped[span.rows], keys, values, attn_mask=mask[span.rows, ..., : span.length]
            )
            for span, keys, values in pool.views()
        ]
        mixed = parts[0] if len(parts) == 1 else torch.cat(parts)
        mixed = mixed.view(count, -1, groups, length, self.shape.size).permute(0, 3, 1, 2, 4)
        return mixed.reshape(count * length, -1)

    def _mix(self, layer: Layer, hidden: Tensor, attended: Tensor) -> Tensor:
        """The rest of a layer: output projection and feed-forward, each added to its input."""
        hidden = torch.addmm(hidden, attended, layer.output)
        both = torch.mm(self._norm(hidden, layer.second_norm), layer.gate_up)
        gate, up = both.chunk(2, -1)
        return torch.addmm(hidden, functional.silu(gate).mul_(up), layer.down)

    def _norm(self, states: Tensor, weights: Tensor | None = None) -> Tensor:
        return functional.rms_norm(states, states.shape[-1:], weights, self.epsilon)


def _packed(weights: LayerWeights, kind: str, shape: Shape) -> Layer:
    norms = None
    if weights.query_norm is not None and weights.key_norm is not None:
        queries = weights.query_norm.expand(shape.heads, shape.size)
        keys = weights.key_norm.expand(shape.key_heads, shape.size)
        norms = torch.cat([queries, keys]).float()
    products = weights.products(shape.dtype)
    qkv, output, gate_up, down = (product.t().contiguous() for product in products)
    first, second = (
        _copied(norm, shape.dtype) for norm in (weights.first_norm, weights.second_norm)
    )
    return Layer(kind, first, qkv, norms, output, second, gate_up, down)


def _copied(weight: Tensor, dtype: torch.dtype) -> Tensor:
    return weight.detach().to(dtype, copy=True)


def _by_head(states: Tensor, rows: int) -> Tensor:
    """[rows * inputs, heads, size] -> [rows, heads, inputs, size]."""
    return states.view(rows, -1, *states.shape[1:]).transpose(1, 2)
