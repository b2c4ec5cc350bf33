"""Confidence intervals for success rates. Not here: comparisons between runs."""

import math

Z_95 = 1.959963984540054
"""The 97.5% quantile of the normal distribution."""


def wilson(successes: int, count: int) -> tuple[float, float]:
    """95% Wilson score interval (low, high) of a success rate; (0, 1) when nothing was counted.

    Unlike the normal approximation it stays inside [0, 1] and is honest at 0 and 1:
    0 of 1000 gives (0, 0.0038). Source: Wilson 1927, J. Am. Stat. Assoc. 22.
    """
    if count == 0:
        return 0.0, 1.0
    share = successes / count
    centre = share + Z_95**2 / (2 * count)
    spread = Z_95 * math.sqrt(share * (1 - share) / count + Z_95**2 / (4 * count**2))
    scale = 1 + Z_95**2 / count
    low = 0.0 if successes == 0 else (centre - spread) / scale
    high = 1.0 if successes == count else (centre + spread) / scale
    return low, high
