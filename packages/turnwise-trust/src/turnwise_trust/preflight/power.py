"""The power of a comparison of two policies on the same tasks, several episodes of each.

The mean difference of a task's rates varies by what the tasks are (another draw of tasks, another
difference) and by the luck of its episodes; more episodes take away the second alone. Sources:
Miller 2024 (arXiv 2411.00640, section 5: sample size of a paired comparison, clustered), Donner and
Klar 2000 (the intraclass correlation by analysis of variance), Fleiss 1981 (the correction of a
sample size for an exact test). The test that is planned for is that of `turnwise compare-runs`.
"""

import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from turnwise.evaluation.intervals import Z_95, student_t
from turnwise.evaluation.paired import POWER

Z_POWER = 0.8416212335729143
"""The quantile of the normal distribution at a power of 80%."""
SAME_TASKS = 0.5
"""Assumed correlation of the two policies' rates over tasks. It cannot be measured before there is
a second policy: at 1 all tasks become easier alike, at 0 training has made other tasks hard."""
MANY = 1000
"""Degrees of freedom from which on Student's t is taken to be that of as many: the quantiles differ
by less than 0.2%."""
LARGEST = 2**30


@dataclass(frozen=True)
class Difficulty:
    """The tasks, as the first of two policies finds them."""

    success: float
    """Its mean rate."""
    likeness: float
    """The intraclass correlation: the share of the variance of single episodes that lies between
    tasks. 1: a task is always solved or never, so that a second episode of it says nothing new."""
    measured: bool = True
    """Whether the likeness was; else it is the worst one."""

    def variance(self, effect: float, episodes: int) -> float:
        """The variance of a task's mean difference from a policy that is better by `effect`, or
        worse where there is no room above, each with so many episodes of it."""
        other = self.success + effect if self.success + effect <= 1 else self.success - effect
        spreads = [rate * (1 - rate) for rate in (self.success, other)]
        between = [self.likeness * spread for spread in spreads]
        within = (1 - self.likeness) * sum(spreads)
        tasks = sum(between) - 2 * SAME_TASKS * math.sqrt(math.prod(between))
        return tasks + within / episodes


def difficulty(counts: Mapping[str, tuple[int, int]]) -> Difficulty:
    """Measure it from graded episodes and successes of each task; tasks without an episode do not
    count. The likeness is 1 where nothing varies, or no task has two episodes."""
    pairs = np.array([pair for pair in counts.values() if pair[0]], np.float64).reshape(-1, 2)
    sizes, rates = pairs[:, 0], pairs[:, 1] / pairs[:, 0]
    success = float(rates.mean()) if len(rates) else 0.0
    tasks, episodes = len(sizes), float(sizes.sum())
    if tasks < 2 or episodes == tasks or not 0 < success < 1:
        return Difficulty(success, 1.0, measured=False)
    overall = pairs[:, 1].sum() / episodes
    between = (sizes * (rates - overall) ** 2).sum() / (tasks - 1)
    within = (sizes * rates * (1 - rates)).sum() / (episodes - tasks)
    size = (episodes - (sizes**2).sum() / episodes) / (tasks - 1)
    likeness = (between - within) / (between + (size - 1) * within)
    return Difficulty(success, float(np.clip(likeness, 0, 1)))


def detects(of: Difficulty, effect: float, tasks: int, episodes: int) -> bool:
    """Whether so many tasks, with so many episodes of each by either policy, show the effect at 5%
    (two-sided) with a probability of `POWER`, in the test that `compare-runs` makes."""
    variance = of.variance(effect, episodes)
    if episodes == 1:  # McNemar's exact test, nearly that with a continuity correction
        return tasks * effect - 1 >= (Z_95 + Z_POWER) * math.sqrt(tasks * variance)
    degrees = min(tasks - 1, MANY)
    quantiles = student_t(0.975, degrees) + student_t(POWER, degrees)
    # `paired.difference` counts two tasks more, in which one pair speaks for either side
    squares = tasks * variance + 2 / episodes**2
    error = math.sqrt((tasks + 2) / (tasks + 1) * squares) / (tasks + 2)
    return effect * tasks / (tasks + 2) >= quantiles * error


def tasks_needed(of: Difficulty, effect: float, episodes: int) -> int:
    """The fewest tasks that show an effect, a share in (0, 1): see `detects`."""
    low = high = 2
    while high < LARGEST and not detects(of, effect, high, episodes):
        low, high = high + 1, 2 * high
    return bisect_left(range(high), True, low, key=lambda n: detects(of, effect, n, episodes))


def detectable(of: Difficulty, tasks: int, episodes: int) -> float | None:
    """The smallest effect that so many tasks show, to a tenth of a point; None where they show
    none that there is room for."""
    room = math.floor(1000 * max(of.success, 1 - of.success))
    # Looked at one by one: beyond the room above an effect is a fall, which needs more tasks.
    effects = (step / 1000 for step in range(1, room + 1 if tasks > 1 else 1))
    return next((one for one in effects if detects(of, one, tasks, episodes)), None)
