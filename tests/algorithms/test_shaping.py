"""The penalty for length, against equation 13 of DAPO as it is printed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.algorithms.parts import PARTS
from turnwise.algorithms.shaping import overlong, unshaped


def printed(length: int, longest: int, cache: int) -> float:
    """R_length(y) for L_max = longest and L_cache = cache, the budget being L_max."""
    if length <= longest - cache:
        return 0.0
    if length <= longest:
        return ((longest - cache) - length) / cache
    return -1.0


def test_the_default_band_is_that_of_the_paper() -> None:
    numbers = PARTS["reward_shaping"].get("overlong").numbers
    assert numbers["overlong_band"].default * 20480 == pytest.approx(4096)
    assert numbers["overlong_penalty"].default == 1.0


@given(
    lengths=st.lists(st.integers(0, 3000), max_size=8),
    budget=st.integers(16, 2000),
    cache=st.integers(1, 16),
    weight=st.floats(0, 5),
)
def test_it_is_the_printed_equation(
    lengths: list[int], budget: int, cache: int, weight: float
) -> None:
    penalties = overlong(np.array(lengths, np.int64), budget, cache / budget, weight)
    expected = [-weight * printed(length, budget, cache) for length in lengths]
    np.testing.assert_allclose(penalties, expected, atol=1e-9)


def test_corners() -> None:
    lengths = np.array([0, 80, 81, 90, 100, 101])
    np.testing.assert_allclose(overlong(lengths, 100, 0.2, 1.0), [0, 0, 0.05, 0.5, 1, 1])
    np.testing.assert_allclose(overlong(lengths, 100, 1.0, 0.5), lengths.clip(max=100) / 200)
    assert overlong(lengths, 100, 0.2, 0.0).tolist() == [0] * 6
    assert unshaped(lengths, 100).tolist() == [0] * 6
    assert len(overlong(np.zeros(0, np.int64), 100, 0.2, 1.0)) == 0
