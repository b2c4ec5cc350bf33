"""`training.c`, called from Python: what a training pass does between matrix products, and its
gradients. Not here: what a pass is made of (`small_llama`)."""

import ctypes
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor
from torch.nn import functional

from turnwise.forward.kernels.compiler import library
from turnwise.forward.kernels.shape import Shape

PIECE = 64
"""Rows whose part of a weight's gradient is added up by itself."""
TILE, COLUMNS = 32, 32
"""Queries that are computed at once, and keys."""


@dataclass(frozen=True)
class Layout:
    """The tokens that each token sees. Tokens stand one after another; a run is some neighbours, of
    which each sees those before it in the run, and all of the run's spans, which are parts of runs
    before it of the same tree. Behind the last run there may be more tokens, which attend to
    nothing. int64 each, on the CPU."""

    trees: Tensor
    """[trees + 1], the first run of each."""
    runs: Tensor
    """[runs, 2], first token and number of tokens."""
    offsets: Tensor
    """[runs + 1], the first span of each."""
    spans: Tensor
    """[spans, 2], first token and number of tokens."""
    positions: Tensor
    """[tokens], each in its text."""

    @property
    def tokens(self) -> int:
        """Tokens of all runs."""
        return int(self.runs[-1].sum())

    @property
    def longest(self) -> int:
        """Tokens that the last one of a run sees at most, itself included, rounded up to a multiple
        of COLUMNS."""
        starts = functional.pad(self.spans[:, 1].cumsum(0), (1, 0))[self.offsets]
        longest = int((starts.diff() + self.runs[:, 1]).max())
        return -(-longest // COLUMNS) * COLUMNS

    @property
    def largest(self) -> int:
        """Tokens of a tree at most."""
        starts = functional.pad(self.runs[:, 1].cumsum(0), (1, 0))[self.trees]
        return int(starts.diff().max())


@dataclass(frozen=True)
class Heads:
    """The rotation and normalization of heads before they attend."""

    query_norm: Tensor | None
    """float32[size], or none."""
    key_norm: Tensor | None
    cosines: Tensor
    """float32[positions, size]"""
    sines: Tensor
    """The first half is negative."""
    epsilon: float


class TrainingKernels:
    """Tensors are contiguous: numbers of the shape's type, weights and sums float32."""

    def __init__(self, library: ctypes.CDLL, shape: Shape) -> None:
        pointer, count, real, threads = (
            ctypes.c_void_p,
            ctypes.c_int64,
            ctypes.c_float,
            ctypes.c_int32,
        )
        self._library, self._shape = library, shape
        self.dtype = shape.dtype
        """Data type of the numbers."""
        library.add_and_normalize.argtypes = [*[pointer] * 5, count, count, real, threads]
        library.normalize_gradient.argtypes = [*[pointer] * 6, count, count, real, threads]
        library.gate.argtypes = [*[pointer] * 2, count, count, threads]
        library.gate_gradient.argtypes = [*[pointer] * 4, count, count, threads]
        library.attend.argtypes = [*[pointer] * 14, count, count, real, threads]
        library.attend_gradient.argtypes = [*[pointer] * 17, *[count] * 3, real, threads]
        for name in ("add_and_normalize", "normalize_gradient", "gate", "gate_gradient"):
            getattr(library, name).restype = None
        library.attend.restype = library.attend_gradient.restype = None

    def add_and_normalize(
        self, hidden: Tensor, deltas: Tensor | None, weights: Tensor, epsilon: float
    ) -> tuple[Tensor, Tensor]:
        """The sums of float32 hidden states and numbers, [n, width] each, and these over their root
        mean squares, times weights [width], as numbers."""
        rows, width = hidden.shape
        sums = hidden if deltas is None else torch.empty_like(hidden)
        normalized = hidden.new_empty(rows, width, dtype=self._shape.dtype)
        tensors = hidden, deltas, weights, sums, normalized
        threads = torch.get_num_threads()
        self._library.add_and_normalize(*pointers(*tensors), rows, width, epsilon, threads)
        return sums, normalized

    def normalize_gradient(
        self, of_normalized: Tensor, sums: Tensor, weights: Tensor, of_sums: Tensor, epsilon: float
    ) -> tuple[Tensor, Tensor]:
        """Adds to `of_sums`; returns it in numbers as well, and the gradient of the weights."""
        rows, width = sums.shape
        of_deltas = torch.empty_like(of_normalized)
        of_weights = sums.new_empty(-(-rows // PIECE), width)
        tensors = of_normalized, sums, weights, of_sums, of_deltas, of_weights
        threads = torch.get_num_threads()
        self._library.normalize_gradient(*pointers(*tensors), rows, width, epsilon, threads)
        return of_deltas, of_weights.sum(0)

    def gate(self, both: Tensor) -> Tensor:
        """silu(gates) * ups, [n, inner], of [n, 2 * inner]: gates, then ups."""
        rows, inner = len(both), both.shape[1] // 2
        gated = both.new_empty(rows, inner)
        self._library.gate(*pointers(both, gated), rows, inner, torch.get_num_threads())
        return gated

    def gate_gradient(self, both: Tensor, of_gated: Tensor) -> tuple[Tensor, Tensor]:
        """The gradient of both, and what `gate` returned."""
        rows, inner = of_gated.shape
        of_both, gated = torch.empty_like(both), torch.empty_like(of_gated)
        tensors = both, of_gated, of_both, gated
        threads = torch.get_num_threads()
        self._library.gate_gradient(*pointers(*tensors), rows, inner, threads)
        return of_both, gated

    def attend(
        self, packed: Tensor, heads: Heads, layout: Layout, asked: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """[m, heads * size] of packed [n, shape.packed], and what the gradient measures the scores
        by, float32[m, heads, 2].

        asked: the m tokens that it is for, int64[m], ascending; by default all.
        """
        shape, threads = self._shape, torch.get_num_threads()
        count = len(packed) if asked is None else len(asked)
        outputs = packed.new_empty(count, shape.heads * shape.size)
        outputs[_before(layout.tokens, asked) :] = 0
        measures = heads.cosines.new_empty(count, shape.heads, 2)
        longest = layout.longest
        scratch = heads.cosines.new_empty(threads, longest, 3 * shape.size + TILE)
        tensors = *_given(packed, heads, layout, asked), outputs, measures, scratch
        numbers = len(layout.trees) - 1, longest, heads.epsilon, threads
        self._library.attend(*pointers(*tensors), *numbers)
        return outputs, measures

    def attend_gradient(
        self,
        packed: Tensor,
        heads: Heads,
        layout: Layout,
        asked: Tensor | None,
        found: tuple[Tensor, Tensor],
        of_outputs: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """The gradient of packed, and of the norms of queries and keys, float32[2, size];
        `found` is what `attend` returned."""
        shape, threads = self._shape, torch.get_num_threads()
        of_packed = torch.empty_like(packed)
        of_packed[layout.tokens :] = 0
        trees, longest, largest = len(layout.trees) - 1, layout.longest, layout.largest
        of_weights = heads.cosines.new_zeros(trees * shape.key_heads, 2, shape.size)
        size = longest * (6 * shape.size + 2 * TILE) + 2 * largest * shape.size
        scratch = heads.cosines.new_empty(threads, size)
        results = of_packed, of_weights, scratch
        tensors = *_given(packed, heads, layout, asked), *found, of_outputs, *results
        numbers = trees, longest, largest, heads.epsilon, threads
        self._library.attend_gradient(*pointers(*tensors), *numbers)
        return of_packed, of_weights.sum(0)


def _given(
    packed: Tensor, heads: Heads, layout: Layout, asked: Tensor | None
) -> tuple[Tensor | None, ...]:
    norms = heads.query_norm, heads.key_norm
    where = layout.trees, layout.runs, layout.offsets, layout.spans, layout.positions
    slots = None
    if asked is not None:
        slots = asked.new_full((len(packed),), -1)
        slots[asked] = torch.arange(len(asked), device=asked.device)
    return (packed, *norms, heads.cosines, heads.sines, *where, slots)


def _before(token: int, asked: Tensor | None) -> int:
    """Number of asked tokens, by default of all, that come before this one."""
    return token if asked is None else int((asked < token).sum())


def pointers(*tensors: Tensor | None) -> list[int | None]:
    """Addresses of tensors; None for None."""
    return [None if tensor is None else tensor.data_ptr() for tensor in tensors]


@cache
def training_kernels(shape: Shape) -> TrainingKernels | None:
    """Kernels for a shape; None where it has none, or they cannot be built."""
    found = library("training.c", shape.macros) if shape.are_kernels else None
    return None if found is None else TrainingKernels(found, shape)
