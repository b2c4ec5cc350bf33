"""`decode.c`, called from Python. Not here: what a decode step is made of (`small_llama`)."""

import ctypes
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from turnwise.forward.kernels.compiler import library
from turnwise.forward.kernels.shape import LANES, Shape


@dataclass(frozen=True)
class Rows:
    """Places of the tokens of n rows; int64[n] each."""

    positions: Tensor
    """Position in the row's text."""
    targets: Tensor
    """Place in the pool where the token's keys and values are written."""
    starts: Tensor
    """First place in the pool that the token attends to."""
    lengths: Tensor
    """Number of places that the token attends to; at least 1."""
    longest: int
    """Largest of these lengths."""


class DecodeKernels:
    """The operations of a decode step between matrix products. Tensors are contiguous, of the
    shape's type where nothing else is said."""

    def __init__(self, library: ctypes.CDLL, shape: Shape) -> None:
        pointer, count, real = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float
        self._normalize = library.normalize
        self._normalize.argtypes = [*[pointer] * 3, count, count, real, ctypes.c_int32]
        self._gate = library.gate
        self._gate.argtypes = [*[pointer] * 2, count, count, ctypes.c_int32]
        self._attend = library.attend
        self._attend.argtypes = [*[pointer] * 12, count, count, real, ctypes.c_int32]
        for function in (self._normalize, self._gate, self._attend):
            function.restype = None
        self._shape = shape

    def normalize(self, states: Tensor, weights: Tensor, epsilon: float) -> Tensor:
        """States [n, width] over their root mean squares, times weights [width]."""
        rows, width = states.shape
        found = torch.empty_like(states)
        pointers = states.data_ptr(), weights.data_ptr(), found.data_ptr()
        self._normalize(*pointers, rows, width, epsilon, torch.get_num_threads())
        return found

    def gate(self, both: Tensor) -> Tensor:
        """silu(gates) * ups, [n, inner], of [n, 2 * inner]: gates, then ups."""
        rows, inner = len(both), both.shape[1] // 2
        found = both.new_empty(rows, inner)
        self._gate(both.data_ptr(), found.data_ptr(), rows, inner, torch.get_num_threads())
        return found

    def attend(
        self,
        packed: Tensor,
        norms: Tensor | None,
        rotation: tuple[Tensor, Tensor],
        rows: Rows,
        pool: tuple[Tensor, Tensor],
        epsilon: float,
    ) -> Tensor:
        """[n, heads * size] of `packed` [n, shape.packed], one token of each row, whose keys and
        values are written into the pool first.

        `norms` are weights, float32[heads + key heads, size]; `rotation` cosines and sines of every
        position, float32[positions, size], the sines of the first half negative; `pool` keys and
        values, [places, key heads, size] each.
        """
        shape, count, threads = self._shape, len(packed), torch.get_num_threads()
        stride = -(-rows.longest // LANES) * LANES
        found = packed.new_empty(count, shape.heads * shape.size)
        size = threads, shape.heads, stride
        scratch = torch.empty(size, dtype=torch.float32, device=packed.device)
        places = (rows.positions, rows.targets, rows.starts, rows.lengths)
        tensors = (packed, norms, *rotation, *places, *pool, found, scratch)
        pointers = [None if tensor is None else tensor.data_ptr() for tensor in tensors]
        self._attend(*pointers, stride, count, epsilon, threads)
        return found


@cache
def decode_kernels(shape: Shape) -> DecodeKernels | None:
    """Kernels for a shape; None where it has none, or they cannot be built."""
    found = library("decode.c", shape.macros) if shape.are_kernels else None
    return None if found is None else DecodeKernels(found, shape)
