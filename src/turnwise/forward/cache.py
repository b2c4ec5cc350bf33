"""The cache of keys and values: one pool of places, in which each history has a run of its own;
masks over it, and the names by which models take their caches.

A run is as long as its history needs, rounded up, so the pool holds the tokens there are and no
rows of a fixed length. Neighbouring runs of one size are read as one view: what is attended to is
never copied. Places that are not filled are masked.
"""

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, CacheLayerMixin

from turnwise.errors import ConfigError, NotSupportedError

PADDING = -1
"""Position of an input that is not a token: it is written where nothing reads."""
SPAN_COLUMNS = 100
"""Columns of one row, read for one input, that cost about as much as one more call."""


@dataclass(frozen=True, order=True)
class CacheExtent:
    """A history's run of neighbouring places: `start` to `start + size` of the pool."""

    start: int
    size: int

    @property
    def end(self) -> int:
        return self.start + self.size


@dataclass(frozen=True)
class Span:
    """Neighbouring rows of a batch whose runs have one size and are neighbours as well."""

    rows: slice
    run: CacheExtent
    """Run of the first row."""
    length: int
    """Places of each row that attention sees."""


@dataclass(frozen=True)
class Placement:
    """The places where the inputs of one forward pass are written, and what its attention sees."""

    targets: torch.Tensor
    """int64[n * inputs], the place of each input."""
    spans: list[Span]
    """All rows of the batch, in order."""
    length: int
    """Length of the longest span."""


class PoolLayer(CacheLayerMixin):  # type: ignore[misc]
    """Keys and values of one layer, [heads, places, head size], allocated at first use. A head of a
    history is one piece: a product of a query with keys that lie apart takes twice as long."""

    def __init__(self, places: int, by_spans: bool) -> None:
        super().__init__()
        self.places, self.by_spans = places, by_spans
        self.placement: Placement | None = None

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        self.keys = self._allocate(key_states)
        self.values = self._allocate(value_states)
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the states [n, heads, inputs, size]; return what is attended to, [n, heads, length,
        size]: a view of one span, a copy of several; the states where attention goes by spans."""
        keys, values = (new.transpose(0, 1).flatten(1, 2) for new in (key_states, value_states))
        placement = self.put(keys, values)
        if self.by_spans:
            return key_states, value_states
        _, all_keys, all_values = zip(*self.views(), strict=True)
        if len(all_keys) == 1:
            return all_keys[0], all_values[0]
        return _joined(all_keys, placement.length), _joined(all_values, placement.length)

    def put(self, keys: torch.Tensor, values: torch.Tensor) -> Placement:
        """Write states of all inputs in order, [heads, n * inputs, size], to their places."""
        if not self.is_initialized:
            self.lazy_initialization(keys, values)
        if self.placement is None:
            raise RuntimeError("the cache was used without a placement")
        self.keys.index_copy_(1, self.placement.targets, keys)
        self.values.index_copy_(1, self.placement.targets, values)
        return self.placement

    def views(self) -> list[tuple[Span, torch.Tensor, torch.Tensor]]:
        """Each span, with the keys and values it sees, [rows, heads, length, size]."""
        assert self.placement is not None  # something has been written
        spans = self.placement.spans
        return [(span, _view(self.keys, span), _view(self.values, span)) for span in spans]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.get_seq_length(), 0

    def get_seq_length(self) -> int:
        return 0 if self.placement is None else self.placement.length

    def get_max_length(self) -> int:
        return self.places

    def _allocate(self, states: torch.Tensor) -> torch.Tensor:
        heads, _, size = states.shape
        # Not `new_empty`: attention gives masked values the weight 0, and 0 times NaN is NaN.
        return states.new_zeros(heads, self.places, size)


class PoolCache(Cache):  # type: ignore[misc]
    """The transformers cache of all layers. `place` comes before each forward pass. The pool has
    one place more than `tokens`: padding is written there."""

    def __init__(self, layers: int, tokens: int, by_spans: bool = False) -> None:
        super().__init__(layers=[PoolLayer(tokens + 1, by_spans) for _ in range(layers)])
        self.tokens, self.by_spans = tokens, by_spans

    def place(self, runs: Sequence[CacheExtent], positions: np.ndarray, device: Any) -> Placement:
        """Place the next pass's inputs, at int64[n, inputs] positions in runs, or PADDING."""
        starts = np.array([run.start for run in runs])[:, None]
        # All rows are one tensor, so padding has to be written too: to the place behind the pool,
        # which belongs to no run. Which of several inputs stays there does not matter.
        targets = np.where(positions == PADDING, self.tokens, starts + positions)
        lengths = (positions.max(1) + 1).clip(1).tolist()
        # A column that is read in vain costs as much again for each input of its row.
        spans = _spans(runs, lengths, SPAN_COLUMNS // positions.shape[1])
        placement = Placement(
            torch.from_numpy(targets.ravel()).to(device), spans, max(span.length for span in spans)
        )
        for layer in self.layers:
            layer.placement = placement
        return placement

    def usable(self, run: CacheExtent, length: int) -> int:
        """The number of a run's first `length` tokens that need not be computed again: all."""
        del run
        return length

    # The pool is allocated in inference mode, and cannot be written to outside of it.
    @torch.inference_mode()
    def copy(self, source: CacheExtent, targets: Sequence[CacheExtent], columns: slice) -> None:
        """Give other runs what one has in these columns."""
        for states in self._stored():
            piece = states[:, source.start + columns.start : source.start + columns.stop]
            for run in targets:
                states[:, run.start + columns.start : run.start + columns.stop] = piece

    @torch.inference_mode()
    def move(self, moves: Sequence[tuple[int, int, int]]) -> None:
        """Take (source, target, length) of places elsewhere, all at once: they may overlap."""
        if not moves:
            return
        lengths = [length for _, _, length in moves]
        within = np.arange(sum(lengths)) - np.repeat(np.cumsum([0, *lengths[:-1]]), lengths)
        sources = np.repeat([source for source, _, _ in moves], lengths) + within
        targets = np.repeat([target for _, target, _ in moves], lengths) + within
        for states in self._stored():
            # index_select copies all sources before anything is written: they may overlap.
            here, there = (torch.from_numpy(p).to(states.device) for p in (sources, targets))
            states.index_copy_(1, there, states.index_select(1, here))

    def _stored(self) -> Iterator[torch.Tensor]:
        for layer in self.layers:
            if layer.is_initialized:
                yield from (layer.keys, layer.values)


def _view(stored: torch.Tensor, span: Span) -> torch.Tensor:
    """[rows, heads, length, size]"""
    heads, places, size = stored.shape
    rows = span.rows.stop - span.rows.start
    # Neighbouring runs of one size are a regular grid: nothing is copied.
    steps = (span.run.size * size, places * size, size, 1)
    return stored.as_strided((rows, heads, span.length, size), steps, span.run.start * size)


def _joined(views: Sequence[torch.Tensor], length: int) -> torch.Tensor:
    """Rows of all views below each other, zeros behind the shorter ones."""
    _, heads, _, size = views[0].shape
    together = views[0].new_zeros(sum(map(len, views)), heads, length, size)
    start = 0
    for view in views:
        together[start : start + len(view), :, : view.shape[2]] = view
        start += len(view)
    return together


def _spans(runs: Sequence[CacheExtent], lengths: Sequence[int], spare: int) -> list[Span]:
    """Cut rows where runs are no neighbours of one size, or over `spare` columns read in vain."""
    spans = []
    start, longest = 0, lengths[0]
    for row, length in enumerate(lengths):
        # A longer row makes all rows of the span before it read further; a shorter one reads too
        # far itself.
        wasted = (length - longest) * (row - start) if length > longest else longest - length
        # Of row 0 this is the last run; `row > start` leaves it out.
        before = runs[row - 1]
        apart = row > start and (before.end != runs[row].start or before.size != runs[row].size)
        if wasted > spare or apart:
            spans.append(Span(slice(start, row), runs[start], longest))
            start, longest = row, length
        longest = max(longest, length)
    return [*spans, Span(slice(start, len(lengths)), runs[start], longest)]


NAMES = ("cache", "past_key_values", "cache_params", "state")
"""Names in use, the present one first; earlier versions know only the others."""


def cache_name(model: Any) -> str | None:
    """The name of a model's argument for its cache, or None, by the first `forward` that states
    one: a derived class may pass it on unseen."""
    kinds = [kind for kind in type(model).__mro__ if "forward" in vars(kind)]
    for parameters in (inspect.signature(vars(kind)["forward"]).parameters for kind in kinds):
        for name in NAMES:
            if name in parameters:
                return name
    return None


def cache_of(output: Any) -> Any:
    """The cache that a model gives with its output, or None."""
    given = (getattr(output, name, None) for name in NAMES)
    return next((one for one in given if one is not None), None)


FULL = "full_attention"
SLIDING = "sliding_attention"


class Masks:
    """The masks of a model's layers, one for each of its `kinds` of attention. Raises ConfigError
    for attention that takes no mask, NotSupportedError for layers of another kind."""

    def __init__(self, model: PreTrainedModel, dtype: torch.dtype) -> None:
        settings = model.config.get_text_config()
        self.kinds = _attention_kinds(model, settings)
        self.window: int = getattr(settings, "sliding_window", None) or 0
        self._model, self._dtype = model, dtype

    def inputs(
        self, cache: PoolCache, runs: Sequence[CacheExtent], ids: np.ndarray, positions: np.ndarray
    ) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Place a pass's inputs; they, their positions, each kind's mask [n, 1, inputs, length]."""
        device = self._model.device
        placement = cache.place(runs, positions, device)
        seen = torch.from_numpy(np.maximum(positions, 0)).to(device)  # 0 for PADDING
        queries, keys = seen[:, None, :, None], torch.arange(placement.length, device=device)
        masks = {kind: self._mask(kind, queries, keys) for kind in self.kinds}
        return torch.from_numpy(ids).to(device), seen, masks

    def _mask(self, kind: str, queries: Tensor, keys: Tensor) -> Tensor:
        hidden = keys > queries
        if kind == SLIDING:
            hidden |= keys <= queries - self.window
        mask = torch.zeros(hidden.shape, dtype=self._dtype, device=keys.device)
        return mask.masked_fill_(hidden, torch.finfo(self._dtype).min)


def _attention_kinds(model: PreTrainedModel, settings: Any) -> tuple[str, ...]:
    name = type(model).__name__
    implementation = model.config._attn_implementation
    if implementation not in ("sdpa", "eager"):
        raise ConfigError(
            f"the embedded engine cannot run {name} with {implementation!r} attention: "
            "load it with attn_implementation='sdpa' or 'eager'"
        )
    if "position_ids" not in inspect.signature(model.forward).parameters:
        raise NotSupportedError(f"{name} takes no position_ids")
    types = getattr(settings, "layer_types", None)
    if types is None:
        types = [FULL if getattr(settings, "sliding_window", None) is None else SLIDING]
    unknown = sorted(set(types) - {FULL, SLIDING})
    if unknown:
        raise NotSupportedError(f"{name} has {unknown[0]} layers, which are not masked here")
    return tuple(sorted(set(types)))
