"""Success over several episodes of each task: at least one of k (pass@k), all of k (pass^k), the
best of k by a number.

Not here: how the episodes are played, and the mean over all of them (`evaluate.py`).
"""

from collections.abc import Callable, Mapping, Sequence
from math import comb
from typing import Any

from turnwise.evaluation.intervals import clustered

Estimate = Callable[[int, int, int], float | None]


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
        chosen = comb(left, k) - comb(left - len(equals), k)
        share += chosen * sum(equals) / len(equals)
        left -= len(equals)
    return share / comb(len(scored), k)


ESTIMATES: Mapping[str, Estimate] = {"pass@k": pass_at, "pass^k": pass_hat}


def reliability(counts: Mapping[str, tuple[int, int]], ks: Sequence[int]) -> dict[str, Any]:
    """The mean over tasks of each estimate for each k: `pass@k` and `pass^k`, by k as a text.

    `counts` are graded episodes and successes of each task. An entry has `mean`, `low` and `high`
    (95%, tasks are the sample), `tasks`, those it is the mean over, and `undefined`, those with
    fewer than k graded episodes, which it leaves out; without any other task `mean` is None.
    """
    return {
        name: {str(k): _mean([estimate(*pair, k) for pair in counts.values()]) for k in ks}
        for name, estimate in ESTIMATES.items()
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
