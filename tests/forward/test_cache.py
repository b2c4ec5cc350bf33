"""The pool of keys and values: what is written where, and that attention reads views."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from turnwise.forward.cache import PADDING, CacheExtent, PoolCache, cache_name, cache_of

TOKENS, HEADS, SIZE = 24, 2, 3
RUNS = [CacheExtent(0, 6), CacheExtent(6, 6), CacheExtent(12, 6), CacheExtent(18, 6)]


def numbered(rows: int, inputs: int, start: int = 1) -> torch.Tensor:
    """Keys [rows, heads, inputs, size], each input filled with its own number."""
    numbers = torch.arange(start, start + rows * inputs, dtype=torch.float32)
    return numbers.view(rows, 1, inputs, 1).expand(rows, HEADS, inputs, SIZE)


def filled(by_spans: bool = False) -> PoolCache:
    """Place p holds p + 1."""
    cache = PoolCache(1, TOKENS, by_spans)
    cache.place(RUNS, np.tile(np.arange(6), (4, 1)), "cpu")
    cache.update(numbered(4, 6), -numbered(4, 6), 0)
    return cache


def stored(cache: PoolCache) -> list[float]:
    """The number in every place but that of padding."""
    numbers: list[float] = cache.layers[0].keys[0, :TOKENS, 0].tolist()
    return numbers


def test_ragged_inputs_land_at_their_own_positions() -> None:
    cache = filled()
    cache.place(RUNS[:3], np.array([[2], [PADDING], [4]]), "cpu")
    keys, values = cache.update(numbered(3, 1, 101), -numbered(3, 1, 101), 0)
    expected = torch.arange(1.0, 19).view(3, 6)[:, :5]
    expected[0, 2], expected[2, 4] = 101, 103
    for head in range(HEADS):
        assert torch.equal(keys[:, head, :, 0], expected)
        assert torch.equal(values[:, head, :, SIZE - 1], -expected)


def test_neighbours_of_one_size_are_read_as_a_view() -> None:
    cache = filled()
    cache.place(RUNS[1:], np.array([[3], [3], [3]]), "cpu")
    keys, values = cache.update(numbered(3, 1), numbered(3, 1), 0)
    assert keys.data_ptr() == cache.layers[0].keys[:, 6:].data_ptr()
    assert values.data_ptr() == cache.layers[0].values[:, 6:].data_ptr()


def test_runs_that_lie_apart_are_spans_of_their_own() -> None:
    """Not neighbours, of another size, or so much shorter that a call of its own reads less."""
    cache = PoolCache(1, 5000)
    runs = [
        CacheExtent(0, 6),
        CacheExtent(6, 6),
        CacheExtent(18, 6),
        CacheExtent(24, 900),
        CacheExtent(924, 900),
        CacheExtent(1824, 900),
    ]
    positions = np.array([[4], [5], [1], [500], [850], [800]])
    spans = cache.place(runs, positions, "cpu").spans
    rows = [(span.rows.start, span.rows.stop) for span in spans]
    assert rows == [(0, 2), (2, 3), (3, 4), (4, 6)]
    assert [span.length for span in spans] == [6, 2, 501, 851]
    assert [span.run.start for span in spans] == [0, 18, 24, 924]


def test_spans_are_joined_for_an_attention_that_wants_one_tensor() -> None:
    cache = filled()
    before = stored(cache)
    cache.place([RUNS[1], RUNS[3]], np.array([[PADDING, 1], [0, 1]]), "cpu")
    keys, _ = cache.update(numbered(2, 2, 51), numbered(2, 2), 0)
    assert keys[:, 0, :, 0].tolist() == [[7, 52], [53, 54]]
    before[7], before[18], before[19] = 52, 53, 54
    assert stored(cache) == before
    cache.place([RUNS[0], RUNS[2]], np.array([[4], [1]]), "cpu")
    keys, _ = cache.update(numbered(2, 1, 61), numbered(2, 1), 0)
    assert keys[:, 0, :, 0].tolist() == [[1, 2, 3, 4, 61], [13, 62, 0, 0, 0]]


def test_an_attention_by_spans_gets_the_new_states_alone() -> None:
    cache = filled(by_spans=True)
    cache.place(RUNS[:2], np.array([[2], [4]]), "cpu")
    new = numbered(2, 1, 71)
    keys, _ = cache.update(new, new, 0)
    assert keys is new
    ((_, seen, _),) = cache.layers[0].views()
    assert seen[:, 1, :, 2].tolist() == [[1, 2, 71, 4, 5], [7, 8, 9, 10, 72]]


def test_moves_are_made_all_at_once() -> None:
    cache = filled()
    cache.move([(0, 3, 4), (3, 0, 3)])
    assert stored(cache)[:8] == [4, 5, 6, 1, 2, 3, 4, 8]
    assert cache.layers[0].values[1, :7, 2].tolist() == [-4, -5, -6, -1, -2, -3, -4]


def test_a_cache_without_placement_refuses() -> None:
    with pytest.raises(RuntimeError, match="placement"):
        PoolCache(1, TOKENS).update(numbered(1, 1), numbered(1, 1), 0)


class Present:
    def forward(self, input_ids: Any, cache: Any = None) -> None: ...


class Earlier:
    def forward(self, input_ids: Any, past_key_values: Any = None) -> None: ...


class State:
    def forward(self, input_ids: Any, cache_params: Any = None) -> None: ...


class Without:
    def forward(self, input_ids: Any) -> None: ...


class Derived(Earlier):
    def forward(self, *given: Any, **others: Any) -> None: ...


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (Present, "cache"),
        (Earlier, "past_key_values"),
        (State, "cache_params"),
        (Derived, "past_key_values"),
        (Without, None),
    ],
)
def test_the_name_is_the_first_that_is_stated(kind: type, name: str | None) -> None:
    assert cache_name(kind()) == name


def test_the_cache_of_an_output_is_found_under_any_of_them() -> None:
    assert cache_of(SimpleNamespace(past_key_values="old")) == "old"
    assert cache_of(SimpleNamespace(cache="new", past_key_values="old")) == "new"
    assert cache_of(SimpleNamespace(logits=1)) is None
