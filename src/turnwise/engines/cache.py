"""Where keys and values live: one row per slot, written in place, read as views.

Decoding reads a contiguous prefix of the rows and of the columns, so nothing is copied however
long the histories are. Not here: which session has which row, and how much of a row is valid; the
attention mask (`runner.py`) hides what is not.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers.cache_utils import Cache, CacheLayerMixin

PADDING = -1
"""Position of an input that is no token: it is written where nobody reads."""
SPAN_COLUMNS = 100
"""Columns of one row, read for one input, that cost about as much as one more call."""


@dataclass(frozen=True)
class Placement:
    """Where the inputs of one forward pass are written, and what its attention sees."""

    rows: slice | torch.Tensor
    """Rows of the batch: a slice is read as a view, int64[n] is gathered."""
    targets: torch.Tensor
    """int64[n * inputs], where each input is written: its row x columns of a row + its column."""
    length: int
    """Columns that attention sees: at least the longest history, inputs included."""
    spans: list[tuple[slice, int]]
    """Neighbouring rows of the batch and the columns that suffice for them: attention over each by
    itself reads less where histories differ."""


class SlotLayer(CacheLayerMixin):  # type: ignore[misc]
    """Keys and values of one layer, [slots, columns, heads, head size], allocated at first use."""

    def __init__(self, slots: int, columns: int) -> None:
        super().__init__()
        self.slots = slots
        self.columns = columns
        self.placement: Placement | None = None

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Allocate zeros; heads, size, type and device are those of the states."""
        self.keys = self._allocate(key_states)
        self.values = self._allocate(value_states)
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the states [n, heads, inputs, size] at the placement; return what is attended to.

        Both results are [n, heads, placement.length, size].
        """
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        if self.placement is None:
            raise RuntimeError("the cache was used without a placement")
        return (
            _write(self.keys, key_states, self.placement),
            _write(self.values, value_states, self.placement),
        )

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Length and offset of the keys. The engine brings its own masks; this agrees with them."""
        return self.get_seq_length(), 0

    def get_seq_length(self) -> int:
        """Columns in use by the current forward pass."""
        return 0 if self.placement is None else self.placement.length

    def get_max_length(self) -> int:
        """Columns of a row."""
        return self.columns

    def _allocate(self, states: torch.Tensor) -> torch.Tensor:
        _, heads, _, size = states.shape
        return states.new_zeros(self.slots, self.columns, heads, size)


class SlotCache(Cache):  # type: ignore[misc]
    """The transformers cache of all layers. `place` comes before each forward pass.

    A row has one column more than `tokens`: padding is written there.
    """

    def __init__(self, layers: int, slots: int, tokens: int) -> None:
        super().__init__(layers=[SlotLayer(slots, tokens + 1) for _ in range(layers)])
        self.tokens = tokens

    def place(self, rows: slice | Sequence[int], positions: np.ndarray, device: Any) -> Placement:
        """Say where the inputs of the next forward pass go.

        `rows` has n rows; `positions` is int64[n, inputs], the column of each input, or PADDING.
        """
        numbers = np.arange(rows.start, rows.stop) if isinstance(rows, slice) else np.array(rows)
        columns = np.where(positions == PADDING, self.tokens, positions)
        where = rows if isinstance(rows, slice) else torch.from_numpy(numbers).to(device)
        flat = numbers[:, None] * (self.tokens + 1) + columns
        lengths = (positions.max(1) + 1).clip(1).tolist()
        spans = _spans(lengths, SPAN_COLUMNS // positions.shape[1])
        targets = torch.from_numpy(flat.ravel()).to(device)
        placement = Placement(where, targets, max(lengths), spans)
        for layer in self.layers:
            layer.placement = placement
        return placement

    @torch.inference_mode()
    def swap(self, first: int, second: int, length: int) -> None:
        """Exchange the first `length` columns of two rows."""
        for states in self._states():
            kept = states[first, :length].clone()
            states[first, :length] = states[second, :length]
            states[second, :length] = kept

    @torch.inference_mode()
    def copy(self, source: int, targets: Sequence[int], columns: slice) -> None:
        """Give other rows these columns of a row."""
        for states in self._states():
            states[list(targets), columns] = states[source, columns]

    def _states(self) -> Iterator[torch.Tensor]:
        for layer in self.layers:
            if layer.is_initialized:
                yield from (layer.keys, layer.values)


def _write(stored: torch.Tensor, new: torch.Tensor, placement: Placement) -> torch.Tensor:
    _, _, heads, size = stored.shape
    states = new.transpose(1, 2).reshape(-1, heads * size)
    stored.view(-1, heads * size).index_copy_(0, placement.targets, states)
    if isinstance(placement.rows, slice):
        return stored[placement.rows, : placement.length].transpose(1, 2)
    return stored[:, : placement.length].index_select(0, placement.rows).transpose(1, 2)


def _spans(lengths: Sequence[int], spare: int) -> list[tuple[slice, int]]:
    """Cut rows of these lengths where going on would read more than `spare` columns in vain."""
    spans = []
    start, longest = 0, lengths[0]
    for row, length in enumerate(lengths):
        wasted = (length - longest) * (row - start) if length > longest else longest - length
        if wasted > spare:
            spans.append((slice(start, row), longest))
            start, longest = row, length
        longest = max(longest, length)
    return [*spans, (slice(start, len(lengths)), longest)]
