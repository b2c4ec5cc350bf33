"""The forward pass of a model that is written out, in bfloat16: all its layers in one call.

On processors with tiles (AMX), prefills and decode steps alike. A prefill that is mostly one long
text would leave all threads but one without work: it goes through `prefill.py`. Not here: which
inputs.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from turnwise.forward.cache import PADDING, CacheExtent, PoolCache
from turnwise.forward.kernels.tiles import Places, TileKernels, tiled
from turnwise.forward.masks import SLIDING
from turnwise.forward.small_llama.prefill import Layer, Prefill
from turnwise.forward.small_llama.weights import LayerWeights, layer_weights

BLOCK = 96
"""Tokens that a thread takes through all layers together, at most."""
LEAST = 16
"""Fewest tokens of a block, if there are so many: as many rows as a tile has."""


class Tiles:
    """Logits after the last input of each row. `refresh` it when `weights` has been. `window` is
    how far a sliding layer sees."""

    def __init__(self, model: Any, weights: Prefill, kernels: TileKernels, window: int) -> None:
        self._model, self._weights, self._kernels, self._window = model, weights, kernels, window
        self.refresh()

    @torch.no_grad()
    def refresh(self) -> None:
        """Copy the weights as they are now."""
        body = self._model.model
        self._embedding = body.embed_tokens.weight.detach().to(torch.float32, copy=True)
        self._last_norm = body.norm.weight.detach().to(torch.float32, copy=True)
        self._packed = [
            _packed(own, layer)
            for own, layer in zip(layer_weights(self._model), self._weights.layers, strict=True)
        ]
        self._pointers: np.ndarray | None = None
        self._known: PoolCache | None = None

    def takes(self, positions: np.ndarray) -> bool:
        """Whether threads can share the work evenly; `positions` are int64[n, inputs]."""
        counts = (positions != PADDING).sum(1)
        share = int(counts.sum()) // torch.get_num_threads()
        return int(counts.max()) <= max(BLOCK, share)

    @torch.inference_mode()
    def forward(
        self, runs: Sequence[CacheExtent], ids: np.ndarray, positions: np.ndarray, cache: PoolCache
    ) -> Tensor:
        """[n, vocabulary]; `ids` and `positions` are int64[n, inputs], inputs at PADDING positions
        are not tokens."""
        weights = self._weights
        shown = positions != PADDING
        shown[:, -1] = True  # something is computed for each row
        places = self._places(runs, positions, shown, cache.tokens)
        found = self._kernels.forward(
            self._layers(cache),
            weights.rotation,
            weights.epsilon,
            (self._embedding, self._last_norm),
            ids[shown],
            places,
        )
        return weights.logits(found)

    def _places(
        self, runs: Sequence[CacheExtent], positions: np.ndarray, shown: np.ndarray, padding: int
    ) -> Places:
        counts = shown.sum(1)
        at = positions[shown]
        seen = np.maximum(at, 0)
        starts = np.repeat([run.start for run in runs], counts)
        skipped = np.maximum(seen + 1 - self._window, 0) if self._window else np.zeros_like(seen)
        outputs = np.full(len(at), -1)
        outputs[counts.cumsum() - 1] = np.arange(len(runs))
        blocks, chains = _blocks(counts.tolist(), torch.get_num_threads())
        return Places(
            seen,
            np.where(at == PADDING, padding, starts + at),
            np.stack([starts, starts + skipped]),
            np.stack([seen + 1, seen + 1 - skipped]),
            outputs,
            blocks,
            chains,
        )

    def _layers(self, cache: PoolCache) -> np.ndarray:
        """The addresses that tiles.c has of each layer, int64[layers, 10]."""
        if self._pointers is None or self._known is not cache:
            shape = self._weights.shape
            rows = []
            state = torch.empty(1, shape.key_heads, 1, shape.size, dtype=shape.dtype)
            for layer, packed, pool in zip(
                self._weights.layers, self._packed, cache.layers, strict=True
            ):
                if not pool.is_initialized:
                    pool.lazy_initialization(state, state)
                tensors = *packed, pool.keys, pool.values
                pointers = [0 if tensor is None else tensor.data_ptr() for tensor in tensors]
                rows.append([*pointers, int(layer.kind == SLIDING)])
            self._pointers, self._known = np.array(rows, np.int64), cache
        return self._pointers


def _packed(own: LayerWeights, layer: Layer) -> list[Tensor | None]:
    """A layer's weights as tiles.c reads them: norms in float32, matrices in tiles."""
    norms = own.first_norm, own.second_norm
    first, second = (norm.detach().to(torch.float32, copy=True) for norm in norms)
    matrices = (layer.qkv, layer.output, layer.gate_up, layer.down)
    qkv, output, gate_up, down = map(tiled, matrices)
    return [first, qkv, layer.head_norm, output, second, gate_up, down]


def _blocks(counts: Sequence[int], threads: int) -> tuple[np.ndarray, np.ndarray]:
    """The beginnings of blocks and chains, for texts with so many new tokens each: short texts
    share a block, long ones are chains of several."""
    most = min(BLOCK, max(LEAST, -(-sum(counts) // threads)))
    blocks, chains, place = [0], [0], 0
    for count in counts:
        if place > blocks[-1] and place + count - blocks[-1] > most:
            blocks.append(place)
            chains.append(len(blocks) - 1)
        end = place + count
        while end - blocks[-1] > BLOCK:
            blocks.append(blocks[-1] + BLOCK)
        place = end
    return np.array([*blocks, place]), np.array([*chains, len(blocks)])
