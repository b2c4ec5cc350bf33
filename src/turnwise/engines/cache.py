"""Where keys and values live: one row per slot, written in place, read as views.

Decoding reads a contiguous prefix of the rows and of the columns, so nothing is copied however
long the histories are. Not here: which session has which row, and how much of a row is valid; the
attention mask (`runner.py`) hides what is not.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from transformers.cache_utils import Cache, CacheLayerMixin

PADDING = -1
"""Position of an input that is no token: it is written where nobody reads."""


@dataclass(frozen=True)
class Placement:
    """Where the inputs of one forward pass are written, and what its attention sees."""

    rows: slice | torch.Tensor
    """Rows of the batch: a slice is read as a view, int64[n] is gathered."""
    numbers: torch.Tensor
    """int64[n, 1, 1], the rows again."""
    columns: torch.Tensor
    """int64[n, 1, inputs], where in its row each input is written."""
    length: int
    """Columns that attention sees: at least the longest history, inputs included."""
    known: dict[tuple[int, int], torch.Tensor] = field(default_factory=dict)
    """Results of `targets`: layers of the same shape share them."""

    def targets(self, heads: int, columns: int) -> torch.Tensor:
        """int64[n * heads * inputs], index into rows x heads x columns of each input and head."""
        if (heads, columns) not in self.known:
            head = torch.arange(heads, device=self.columns.device)[:, None]
            flat = (self.numbers * heads + head) * columns + self.columns
            self.known[heads, columns] = flat.flatten()
        return self.known[heads, columns]


class SlotLayer(CacheLayerMixin):  # type: ignore[misc]
    """Keys and values of one layer, [slots, heads, columns, head size], allocated at first use."""

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
        return states.new_zeros(self.slots, heads, self.columns, size)


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
        placement = Placement(
            where,
            torch.from_numpy(numbers[:, None, None]).to(device),
            torch.from_numpy(columns[:, None]).to(device),
            int(positions.max()) + 1,
        )
        for layer in self.layers:
            layer.placement = placement
        return placement

    @torch.inference_mode()
    def swap(self, first: int, second: int, length: int) -> None:
        """Exchange the first `length` columns of two rows."""
        for layer in self.layers:
            if layer.is_initialized:
                for states in (layer.keys, layer.values):
                    kept = states[first, :, :length].clone()
                    states[first, :, :length] = states[second, :, :length]
                    states[second, :, :length] = kept


def _write(stored: torch.Tensor, new: torch.Tensor, placement: Placement) -> torch.Tensor:
    _, heads, columns, size = stored.shape
    targets = placement.targets(heads, columns)
    stored.view(-1, size).index_copy_(0, targets, new.reshape(-1, size))
    if isinstance(placement.rows, slice):
        return stored[placement.rows, :, : placement.length]
    return stored[:, :, : placement.length].index_select(0, placement.rows)
