"""Denominators: by hand on one batch, and the same whatever the split."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.algorithms.aggregation import AGGREGATIONS, Totals

COUNTS = np.array([4, 0, 1, 5])
BY_HAND = {
    "token_mean": [1 / 10, 0, 1 / 10, 1 / 10],
    "sequence_mean_token_mean": [1 / 12, 0, 1 / 3, 1 / 15],
    "sequence_mean_token_sum": [1 / 3, 0, 1 / 3, 1 / 3],
    "constant": [1 / 60, 0, 1 / 60, 1 / 60],
}


@pytest.mark.parametrize("name", AGGREGATIONS)
def test_weights_by_hand(name: str) -> None:
    """Sequence 1 has no trained token: it is in no denominator."""
    weights = AGGREGATIONS[name](COUNTS, Totals.of(COUNTS), 20.0)
    np.testing.assert_allclose(weights, BY_HAND[name], rtol=1e-15)


@pytest.mark.parametrize("name", AGGREGATIONS)
@given(counts=st.lists(st.integers(0, 50), min_size=1, max_size=12), cut=st.integers(0, 12))
def test_parts_of_a_batch_get_the_weights_of_the_whole(
    name: str, counts: list[int], cut: int
) -> None:
    whole = np.array(counts, np.int64)
    totals = Totals.of(whole)
    parts = [AGGREGATIONS[name](part, totals, 7.0) for part in (whole[:cut], whole[cut:])]
    np.testing.assert_array_equal(np.concatenate(parts), AGGREGATIONS[name](whole, totals, 7.0))


@pytest.mark.parametrize("name", AGGREGATIONS)
def test_a_batch_without_trained_tokens_has_no_weight(name: str) -> None:
    nothing = np.zeros(3, np.int64)
    np.testing.assert_array_equal(AGGREGATIONS[name](nothing, Totals.of(nothing), 2.0), nothing)


@pytest.mark.parametrize("name", ["token_mean", "sequence_mean_token_mean"])
def test_means_of_a_constant_loss_are_that_constant(name: str) -> None:
    weights = AGGREGATIONS[name](COUNTS, Totals.of(COUNTS), 1.0)
    assert (weights * COUNTS).sum() == pytest.approx(1.0)
