"""Confidence intervals for success rates, of one episode a task and of several; and success over
several: at least one of k (pass@k), all of k (pass^k), the best of k by a number.

Episodes of one task are no independent draws: a task that is hard is hard each time. With several
of them the task is the unit that was sampled, and the interval is clustered by it.
`benchmarks/intervals.py` measures how often these intervals hold the truth.
"""

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import comb
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

Z_95 = 1.959963984540054
"""The 97.5% quantile of the normal distribution."""

PSEUDO_TASK = 0.1
"""Weight of a task that always succeeds, and of one that never does, in the estimate of the design
effect: without them it comes out too small where few tasks differ from the rest (measured in
`benchmarks/intervals.py`)."""


class Interval(NamedTuple):
    """The 95% confidence interval of a rate. Example: wilson(14, 1000).low."""

    low: float
    high: float


def wilson(successes: int, count: int) -> Interval:
    """95% Wilson score interval of a success rate; (0, 1) when nothing was counted. Unlike the
    normal approximation it stays inside [0, 1] and is honest at 0 and 1: 0 of 1000 gives (0,
    0.0038). Source: Wilson 1927, J. Am. Stat. Assoc. 22."""
    return _score(successes / count, count, Z_95) if count else Interval(0.0, 1.0)


def clustered(sums: ArrayLike, counts: ArrayLike) -> Interval:
    """95% interval of a mean over all episodes, clustered by task.

    `sums` (float[tasks]) are sums of values in [0, 1] over the episodes of each task, `counts`
    (int[tasks], above 0) how many episodes these are. Returns (0, 1) for fewer than two tasks.

    The clustered variance of the mean (Miller 2024, arXiv 2411.00640, equation 4, with the factor
    tasks / (tasks - 1)) by that of as many independent episodes is the design effect. A Wilson
    interval for the number of episodes divided by it, with Student's t of tasks - 1 degrees of
    freedom (Korn and Graubard 1998, Survey Methodology 24), stays inside [0, 1] and is honest at 0
    and 1.
    """
    totals, sizes = np.asarray(sums, np.float64), np.asarray(counts, np.float64)
    tasks = len(totals)
    if tasks < 2:
        return Interval(0.0, 1.0)
    mean, episodes = totals.sum() / sizes.sum(), sizes.sum() / design_effect(totals, sizes)
    return _score(float(mean), float(episodes), student_t(0.975, tasks - 1))


def design_effect(sums: ArrayLike, counts: ArrayLike) -> float:
    """The variance of a mean over episodes by that of as many independent ones, from `sums` and
    `counts` as in `clustered`, with two pseudo-tasks of weight `PSEUDO_TASK`."""
    totals, sizes = np.asarray(sums, np.float64), np.asarray(counts, np.float64)
    size = sizes.mean()
    tasks = len(totals) + 2 * PSEUDO_TASK
    episodes = sizes.sum() + 2 * PSEUDO_TASK * size
    mean = (totals.sum() + PSEUDO_TASK * size) / episodes
    squares = ((totals - sizes * mean) ** 2).sum()
    # The two pseudo-tasks miss the mean by size * (1 - mean) and size * mean.
    squares += PSEUDO_TASK * size**2 * ((1 - mean) ** 2 + mean**2)
    variance = tasks / (tasks - 1) * squares / episodes**2
    return float(variance / (mean * (1 - mean) / episodes))


@lru_cache(maxsize=4096)
def student_t(probability: float, degrees: int) -> float:
    """The quantile of Student's t distribution for a probability in [0.5, 1).

    Example: student_t(0.975, 10) is 2.228.
    """
    low, high = 0.0, 1.0
    while student_t_probability(high, degrees) < probability:
        low, high = high, 2 * high
    for _ in range(60):  # to the last digit of a float
        middle = (low + high) / 2
        if student_t_probability(middle, degrees) < probability:
            low = middle
        else:
            high = middle
    return high


def student_t_probability(value: float, degrees: int) -> float:
    """The probability that a variable with Student's t distribution is at most `value`, for a whole
    number of degrees of freedom from 1 on. Source: Abramowitz and Stegun 1964, 26.7.3 and 26.7.4.
    """
    angle = math.atan(abs(value) / math.sqrt(degrees))
    cosine, first = math.cos(angle), 2 + degrees % 2
    orders = np.arange(first, degrees, 2, dtype=np.float64)  # terms after the first one
    series = 1 + np.cumprod((orders - 1) / orders * cosine**2).sum()
    if degrees % 2 == 0:
        inside = math.sin(angle) * series
    else:
        odd = math.sin(angle) * cosine * series if degrees > 1 else 0.0
        inside = 2 / math.pi * (angle + odd)
    return (1 + math.copysign(inside, value)) / 2


def _score(share: float, count: float, quantile: float) -> Interval:
    """Wilson's interval, for a count that need not be whole."""
    centre = share + quantile**2 / (2 * count)
    spread = quantile * math.sqrt(share * (1 - share) / count + quantile**2 / (4 * count**2))
    scale = 1 + quantile**2 / count
    low = 0.0 if share == 0 else (centre - spread) / scale  # 0 but for rounding
    high = 1.0 if share == 1 else (centre + spread) / scale
    return Interval(low, high)


def pass_at(count: int, successes: int, k: int) -> float | None:
    """Estimate without bias the probability that at least one of k episodes of a task succeeds.

    None with fewer than k episodes. Source: Chen et al. 2021 (arXiv 2107.03374, equation 1).

    >>> pass_at(count=4, successes=1, k=2)
    0.5
    """
    return None if count < k else 1 - comb(count - successes, k) / comb(count, k)


def pass_hat(count: int, successes: int, k: int) -> float | None:
    """Estimate without bias the probability that all of k episodes of a task succeed.

    None with fewer than k episodes. Source: tau-bench (Yao et al. 2024, arXiv 2406.12045).

    >>> pass_hat(count=4, successes=3, k=2)
    0.5
    """
    return None if count < k else comb(successes, k) / comb(count, k)


def best_of(scored: Sequence[tuple[float, bool]], k: int) -> float | None:
    """Estimate without bias the probability that the episode with the highest score of k succeeds,
    from scores and successes of all episodes of a task; of equal scores one is drawn.

    None with fewer than k episodes. It is the mean over all choices of k of them.

    >>> best_of([(0.9, False), (0.5, True)], k=2)
    0.0
    """
    left, share = len(scored), 0.0
    if left < k:
        return None
    for score in sorted({score for score, _ in scored}, reverse=True):
        equals = [success for other, success in scored if other == score]
        # Choices of k whose highest score is this one: all of those left, less those without it.
        chosen = comb(left, k) - comb(left - len(equals), k)
        share += chosen * sum(equals) / len(equals)
        left -= len(equals)
    return share / comb(len(scored), k)


def reliability(counts: Mapping[str, tuple[int, int]], ks: Sequence[int]) -> dict[str, Any]:
    """The mean over tasks of each estimate for each k: `pass@k` and `pass^k`, by k as a text.

    `counts` are graded episodes and successes of each task. An entry has `mean`, `low` and `high`
    (95%, tasks are the sample), `tasks`, those it is the mean over, and `undefined`, those with
    fewer than k graded episodes, which it leaves out; without any other task `mean` is None.
    """
    return {
        name: {str(k): _mean([estimate(*pair, k) for pair in counts.values()]) for k in ks}
        for name, estimate in {"pass@k": pass_at, "pass^k": pass_hat}.items()
    }


def best_of_ks(
    scored: Mapping[str, Sequence[tuple[float, bool]]], ks: Sequence[int]
) -> dict[str, Any]:
    """The mean over tasks of `best_of` for each k, with entries as those of `reliability`."""
    return {str(k): _mean([best_of(own, k) for own in scored.values()]) for k in ks}


def powers_of_two(most: int) -> tuple[int, ...]:
    """The powers of two up to a number. Example: powers_of_two(6) is (1, 2, 4)."""
    return tuple(2**power for power in range(most.bit_length()))


def _mean(estimates: Sequence[float | None]) -> dict[str, Any]:
    defined = [estimate for estimate in estimates if estimate is not None]
    low, high = clustered(defined, [1] * len(defined))
    return {
        "mean": sum(defined) / len(defined) if defined else None,
        "low": low,
        "high": high,
        "tasks": len(defined),
        "undefined": len(estimates) - len(defined),
    }
