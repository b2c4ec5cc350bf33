"""Curves in a terminal."""

from collections.abc import Sequence

import pytest

from turnwise.monitor.display import curve


@pytest.mark.parametrize(
    ("values", "width", "height", "drawn"),
    [
        ([], 4, 1, [""]),
        ([0, 0.5, 1], 4, 1, ["▁▄█"]),
        ([0, 0, 1, 1, 0], 3, 1, ["▁█▁"]),  # means of neighbours
        ([0.25, 0.75, 1], 4, 2, [" ▄█", "▄██"]),
        ([-1, 0, 3], 4, 2, ["  █", "▁▄█"]),  # from the least to the greatest
    ],
)
def test_curves_are_bars_between_zero_and_one(
    values: Sequence[float], width: int, height: int, drawn: list[str]
) -> None:
    assert curve(values, width, height) == drawn
