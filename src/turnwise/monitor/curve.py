"""Curves out of block characters, for terminals. Not here: what is drawn (metrics.py)."""

from collections.abc import Sequence
from statistics import fmean

BLOCKS = " ▁▂▃▄▅▆▇█"


def curve(values: Sequence[float], width: int, height: int = 1) -> list[str]:
    """Draw values as bars, in lines from the top: one column a value, or the mean of as many
    neighbours as it takes to need no more than `width`. Bars begin at 0 and end at 1, or at the
    least and the greatest value where one lies outside."""
    share = -(-len(values) // width)
    means = [fmean(values[at : at + share]) for at in range(0, len(values), share or 1)]
    low, high = min([0.0, *means]), max([1.0, *means])
    filled = [(mean - low) / (high - low) * height * (len(BLOCKS) - 1) for mean in means]
    return ["".join(_block(bar, row) for bar in filled) for row in reversed(range(height))]


def _block(bar: float, row: int) -> str:
    """The part of a bar, in eighths of a line, that stands in a row counted from the bottom; of the
    lowest row always something, so that each column can be seen."""
    full = len(BLOCKS) - 1
    return BLOCKS[min(full, max(int(row == 0), round(bar) - row * full))]
