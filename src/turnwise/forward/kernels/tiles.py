"""`tiles.c`, called from Python. Not here: which rows go through it (`small_llama`)."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from turnwise.forward.kernels.compiler import library
from turnwise.forward.kernels.shape import Shape

DEPTH = 32
"""Numbers of a tile's row; widths are a multiple of it."""


@dataclass(frozen=True)
class Places:
    """Places of n tokens; int64 [n], or [2, n] for full and for sliding layers."""

    positions: np.ndarray
    """Position in the token's text."""
    targets: np.ndarray
    """Place in the pool where the token's keys and values are written."""
    starts: np.ndarray
    """[2, n], in the pool: the first place that it attends to."""
    lengths: np.ndarray
    """[2, n], how many places it attends to; at least 1."""
    outputs: np.ndarray
    """Row of each token in the result; -1 for tokens whose result is not needed."""
    blocks: np.ndarray
    """int64[blocks + 1]: where the tokens of each begin, and the end."""
    chains: np.ndarray
    """int64[chains + 1]: where the blocks of each begin, and the end. A block sees what those
    before it in its chain have written, and nothing of other chains."""


class TileKernels:
    """All layers of a model at once; `width` and `inner` are multiples of DEPTH."""

    def __init__(self, library: ctypes.CDLL, shape: Shape, width: int, inner: int) -> None:
        pointer, count, real = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float
        self._forward, self._bytes = library.forward, library.bytes_needed
        before: list[Any] = [pointer, count, count, count, pointer, pointer, real]
        rows: list[Any] = [*[pointer] * 8, count, pointer, pointer, count]
        room: list[Any] = [pointer, pointer, count, count, ctypes.c_int32]
        self._forward.argtypes = [*before, *rows, *room]
        self._forward.restype = None
        self._bytes.argtypes, self._bytes.restype = [count] * 4, count
        self._shape, self._width, self._inner = shape, width, inner

    def forward(
        self,
        layers: np.ndarray,
        rotation: tuple[Tensor, Tensor],
        epsilon: float,
        ends: tuple[Tensor, Tensor],
        ids: np.ndarray,
        places: Places,
    ) -> Tensor:
        """float32[rows wanted, width] of tokens `ids`, int64[n], after the last norm.

        `layers` is int64[layers, 10], what tiles.c has of each layer; `ends` are embeddings,
        float32[vocabulary, width], and the last norm, float32[width]; `rotation` cosines and sines
        of every position, float32[positions, size], the sines of the first half negative.
        """
        threads = torch.get_num_threads()
        stride = -(-int(places.lengths.max()) // DEPTH) * DEPTH
        most = int(np.diff(places.blocks).max())
        found = ends[0].new_empty(int(places.outputs.max()) + 1, self._width)
        needed = self._bytes(most, self._width, self._inner, stride)
        scratch = torch.empty(threads * needed, dtype=torch.uint8)
        tables = places.positions, places.targets, places.starts, places.lengths, places.outputs
        self._forward(
            *(layers.ctypes.data, len(layers), self._width, self._inner),
            *(rotation[0].data_ptr(), rotation[1].data_ptr(), epsilon),
            *(ends[0].data_ptr(), ends[1].data_ptr(), ids.ctypes.data),
            *(table.ctypes.data for table in tables),
            *(len(ids), places.blocks.ctypes.data, places.chains.ctypes.data),
            *(len(places.chains) - 1, found.data_ptr(), scratch.data_ptr()),
            *(most, stride, threads),
        )
        return found


def tiled(weights: Tensor) -> Tensor:
    """Weights [inputs, outputs] as tiles.c reads them, in bfloat16."""
    inputs, outputs = weights.shape
    parts = weights.to(torch.bfloat16).view(inputs // DEPTH, DEPTH // 2, 2, outputs // 16, 16)
    return parts.permute(3, 0, 1, 4, 2).contiguous()


@cache
def tile_kernels(shape: Shape, width: int, inner: int) -> TileKernels | None:
    """Kernels for these sizes; None for other sizes, on processors without tiles, and where they
    cannot be built."""
    sizes: Sequence[int] = (width, inner, shape.packed, shape.heads * shape.size)
    if not shape.are_kernels or shape.dtype != torch.bfloat16 or any(s % DEPTH for s in sizes):
        return None
    found = library("tiles.c", shape.macros)
    if found is None or not found.have_tiles():
        return None
    return TileKernels(found, shape, width, inner)
