"""The slot cache: what is written where, and that decoding reads views."""

import numpy as np
import pytest
import torch

from turnwise.engines.cache import PADDING, SlotCache

SLOTS, TOKENS, HEADS, SIZE = 4, 6, 2, 3


def numbered(rows: int, inputs: int, start: int = 1) -> torch.Tensor:
    """Keys [rows, heads, inputs, size], each input filled with its own number."""
    numbers = torch.arange(start, start + rows * inputs, dtype=torch.float32)
    return numbers.view(rows, 1, inputs, 1).expand(rows, HEADS, inputs, SIZE)


def filled() -> SlotCache:
    """Row r holds r * TOKENS + 1 ... r * TOKENS + TOKENS."""
    cache = SlotCache(1, SLOTS, TOKENS)
    positions = np.tile(np.arange(TOKENS), (SLOTS, 1))
    cache.place(slice(0, SLOTS), positions, "cpu")
    cache.update(numbered(SLOTS, TOKENS), -numbered(SLOTS, TOKENS), 0)
    return cache


def test_ragged_inputs_land_at_their_own_positions() -> None:
    cache = filled()
    positions = np.array([[2], [PADDING], [4]])
    cache.place(slice(0, 3), positions, "cpu")
    keys, values = cache.update(numbered(3, 1, 101), -numbered(3, 1, 101), 0)
    expected = torch.arange(1.0, 19).view(3, 6)[:, :5]
    expected[0, 2], expected[2, 4] = 101, 103
    for head in range(HEADS):
        assert torch.equal(keys[:, head, :, 0], expected)
        assert torch.equal(values[:, head, :, SIZE - 1], -expected)


def test_decoding_reads_a_view_and_not_a_copy() -> None:
    cache = filled()
    cache.place(slice(0, 3), np.array([[3], [3], [3]]), "cpu")
    keys, values = cache.update(numbered(3, 1), numbered(3, 1), 0)
    assert keys.data_ptr() == cache.layers[0].keys.data_ptr()
    assert values.data_ptr() == cache.layers[0].values.data_ptr()


def test_scattered_rows_are_gathered_and_others_left_alone() -> None:
    cache = filled()
    before = cache.layers[0].keys[:, :TOKENS].clone()
    positions = np.array([[PADDING, 1], [0, 1]])
    cache.place([1, 3], positions, "cpu")
    keys, _ = cache.update(numbered(2, 2, 51), numbered(2, 2), 0)
    assert keys[:, 0, :, 0].tolist() == [[7, 52], [53, 54]]
    after = cache.layers[0].keys[:, :TOKENS]
    assert torch.equal(after[[0, 2]], before[[0, 2]])
    assert torch.equal(after[[1, 3], 2:], before[[1, 3], 2:])


def test_swap_exchanges_rows_up_to_a_length() -> None:
    cache = filled()
    cache.swap(0, 3, 4)
    stored = cache.layers[0].values[:, :TOKENS, 1, 0]
    assert stored[0].tolist() == [-19, -20, -21, -22, -5, -6]
    assert stored[3].tolist() == [-1, -2, -3, -4, -23, -24]
    assert stored[1].tolist() == [-7, -8, -9, -10, -11, -12]


def test_copy_gives_rows_columns_of_another() -> None:
    cache = filled()
    cache.copy(1, [0, 3], slice(1, 4))
    stored = cache.layers[0].keys[:, :TOKENS, 0, 2]
    assert stored[0].tolist() == [1, 8, 9, 10, 5, 6]
    assert stored[3].tolist() == [19, 8, 9, 10, 23, 24]
    assert stored[1:3].tolist() == [[7, 8, 9, 10, 11, 12], [13, 14, 15, 16, 17, 18]]


def test_a_cache_without_placement_refuses() -> None:
    with pytest.raises(RuntimeError, match="placement"):
        SlotCache(1, SLOTS, TOKENS).update(numbered(1, 1), numbered(1, 1), 0)
