"""Denominators: by hand on one batch, and the same whatever the split."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.algorithms.declared import functions
from turnwise.algorithms.aggregation import Totals

AGGREGATIONS = functions("aggregation")

COUNTS = np.array([4, 0, 1, 5])
TASKS = ["a", "a", "b", "b"]
BY_HAND = {
    "token_mean": [1 / 10, 0, 1 / 10, 1 / 10],
    "sequence_mean_token_mean": [1 / 12, 0, 1 / 3, 1 / 15],
    "sequence_mean_token_sum": [1 / 3, 0, 1 / 3, 1 / 3],
    "constant": [1 / 60, 0, 1 / 60, 1 / 60],
    "prompt_mean": [1 / 8, 0, 1 / 12, 1 / 12],
}


def weights_of(
    name: str, counts: np.ndarray, tasks: list[str], totals: Totals, length: float = 20.0
) -> np.ndarray:
    numbers = {"length": length} if name == "constant" else {}
    return AGGREGATIONS[name](counts, tasks, totals, **numbers)


@pytest.mark.parametrize("name", AGGREGATIONS)
def test_weights_by_hand(name: str) -> None:
    """Sequence 1 has no trained token: it is in no denominator. Nor has any of another batch."""
    weights = weights_of(name, COUNTS, TASKS, Totals.of(COUNTS, TASKS))
    np.testing.assert_allclose(weights, BY_HAND[name], rtol=1e-15)
    nothing = np.zeros(4, np.int64)
    assert not weights_of(name, nothing, TASKS, Totals.of(nothing, TASKS)).any()


@pytest.mark.long
@pytest.mark.parametrize("name", AGGREGATIONS)
@given(counts=st.lists(st.integers(0, 50), min_size=1, max_size=12), cut=st.integers(0, 12))
def test_parts_of_a_batch_get_the_weights_of_the_whole(
    name: str, counts: list[int], cut: int
) -> None:
    whole = np.array(counts, np.int64)
    tasks = [f"task {index % 3}" for index in range(len(whole))]
    totals = Totals.of(whole, tasks)
    halves = ((whole[:cut], tasks[:cut]), (whole[cut:], tasks[cut:]))
    parts = [weights_of(name, *half, totals) for half in halves]
    np.testing.assert_array_equal(np.concatenate(parts), weights_of(name, whole, tasks, totals))
