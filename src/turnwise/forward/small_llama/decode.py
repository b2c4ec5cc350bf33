"""A decode step of a model that is written out: matrix products by PyTorch, all else by compiled
kernels.

One token of each trajectory goes through all layers. The pool is read where it is, row by row,
each as far as it goes: neither spans nor masks are needed. Not here: prefills (`prefill.py`).
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from turnwise.forward.cache import PADDING, CacheExtent, PoolCache, PoolLayer
from turnwise.forward.kernels.decode import DecodeKernels, Rows
from turnwise.forward.masks import SLIDING
from turnwise.forward.small_llama.prefill import Prefill


class Decode:
    """Logits after one more token of each row. `window` is how far a sliding layer sees."""

    def __init__(self, weights: Prefill, kernels: DecodeKernels, window: int) -> None:
        self._weights, self._kernels, self._window = weights, kernels, window
        self._slides = any(layer.kind == SLIDING for layer in weights.layers)

    @torch.inference_mode()
    def forward(
        self, runs: Sequence[CacheExtent], ids: np.ndarray, positions: np.ndarray, cache: PoolCache
    ) -> Tensor:
        """[n, vocabulary]; `ids` and `positions` are int64[n], inputs at PADDING positions are not
        tokens."""
        weights, kernels = self._weights, self._kernels
        rows = self._rows(runs, positions, cache.tokens)
        hidden = functional.embedding(torch.from_numpy(ids), weights.embedding)
        for layer, pool in zip(weights.layers, cache.layers, strict=True):
            packed = torch.mm(self._norm(hidden, layer.first_norm), layer.qkv)
            attended = kernels.attend(
                packed,
                layer.head_norm,
                weights.rotation,
                rows[layer.kind == SLIDING],
                self._stored(pool),
                weights.epsilon,
            )
            hidden = torch.addmm(hidden, attended, layer.output)
            both = torch.mm(self._norm(hidden, layer.second_norm), layer.gate_up)
            hidden = torch.addmm(hidden, kernels.gate(both), layer.down)
        return weights.logits(self._last_norm(hidden))

    def _norm(self, states: Tensor, weights: Tensor) -> Tensor:
        return self._kernels.normalize(states, weights, self._weights.epsilon)

    def _last_norm(self, hidden: Tensor) -> Tensor:
        """Normalize in the type of the model, which may be wider than that of its layers here."""
        weights = self._weights
        if hidden.dtype == weights.last_norm.dtype:
            return self._norm(hidden, weights.last_norm)
        wider = hidden.to(weights.last_norm.dtype)
        return functional.rms_norm(wider, wider.shape[-1:], weights.last_norm, weights.epsilon)

    def _rows(self, runs: Sequence[CacheExtent], at: np.ndarray, padding: int) -> tuple[Rows, Rows]:
        """Rows for full and for sliding layers."""
        seen = np.maximum(at, 0)
        starts = np.array([run.start for run in runs])
        targets = np.where(at == PADDING, padding, starts + at)
        every = _rows(seen, targets, starts)
        if not self._slides:
            return every, every
        skipped = np.maximum(seen + 1 - self._window, 0)
        return every, _rows(seen, targets, starts, skipped)

    def _stored(self, pool: PoolLayer) -> tuple[Tensor, Tensor]:
        if not pool.is_initialized:
            shape = self._weights.shape
            state = self._weights.embedding.new_empty(1, shape.key_heads, 1, shape.size)
            pool.lazy_initialization(state, state)
        return pool.keys, pool.values


def _rows(
    seen: np.ndarray, targets: np.ndarray, starts: np.ndarray, skipped: np.ndarray | int = 0
) -> Rows:
    """Rows that attend to all places but the first ones, `skipped` of each."""
    lengths = seen + 1 - skipped
    columns = (seen, targets, starts + skipped, lengths)
    positions, written, first, visible = map(torch.from_numpy, columns)
    return Rows(positions, written, first, visible, int(lengths.max()))
