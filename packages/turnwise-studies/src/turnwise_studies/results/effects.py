"""The effect that a study claims: paired differences between two arms, and a verdict.

Runs of one seed are a pair: they begin alike and play the same tasks. The difference is given by
seed, with Student's t over seeds, since another seed ends elsewhere; and by task, over the episodes
of all seeds, since other tasks would come out otherwise.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Literal

import numpy as np

from turnwise.evaluation.intervals import student_t, student_t_probability
from turnwise.evaluation.paired import Played, difference, holm, pairs_of

Direction = Literal["higher", "lower"]
Verdict = Literal["effect shown", "not shown", "opposite", "no verdict"]
LEVEL = 0.05
FEWEST = 3
"""Seeds for a verdict: of runs that learn or do not, two show an absent effect in 6.7% of cases."""
ROUNDING = 1e-6
"""Numbers are alike if they differ by less than this part: single precision's, a few times over."""
EVERYWHERE = (-math.inf, math.inf)


@dataclass(frozen=True)
class Mean:
    mean: float
    low: float | None
    """The 95% interval by Student's t; None for one seed, and for seeds that are all alike."""
    high: float | None
    p: float | None
    """Two-sided, of so large a mean where the true one is 0."""


@dataclass(frozen=True)
class ByTask:
    """A paired difference of success over the tasks that two arms both played, in all seeds."""

    difference: float
    low: float
    """The 95% interval, clustered by task (`paired.difference`)."""
    high: float
    tasks: int
    pairs: int
    """Pairs of episodes that both have a grade."""


@dataclass(frozen=True)
class Effect:
    metric: str
    arm: str
    against: str
    direction: Direction
    claim: str
    published: str
    source: str
    by_seed: dict[str, float]
    """The arm less the other one."""
    over_seeds: Mean | None
    """None where a run lacks the number."""
    ratio: Mean | None
    """A geometric mean over seeds with the t interval of its logarithm; None for shares of
    successes, and where a number is not above 0."""
    by_task: ByTask | None
    """None where the metric is no success of an evaluation, or the arms played other tasks."""
    p_corrected: float | None
    """The p of `over_seeds` with Holm's correction for all claims of the study."""
    verdict: Verdict
    why: str


def mean_over_seeds(
    values: Sequence[float], within: tuple[float, float] = EVERYWHERE, size: float | None = None
) -> Mean:
    """The mean of one number for each seed, with a t interval that stays `within` what it can be.
    `size` is that of the numbers that the values, and so their rounding, come from."""
    mean, degrees = fmean(values), len(values) - 1
    if size is None:
        size = max(map(abs, values))
    # A spread that was not seen, or is rounding, is no estimate of the one that there is.
    if not degrees or max(values) - min(values) <= ROUNDING * size:
        return Mean(mean, None, None, None)
    error = stdev(values) / math.sqrt(len(values))
    spread = student_t(0.975, degrees) * error
    low, high = max(within[0], mean - spread), min(within[1], mean + spread)
    p = 2 * (1 - student_t_probability(abs(mean) / error, degrees))
    return Mean(mean, low, high, max(0.0, p))


def mean_difference(
    arm: Mapping[str, float | None],
    against: Mapping[str, float | None],
    within: tuple[float, float] = EVERYWHERE,
) -> Mean | None:
    """The mean of the seeds' differences. None where a number is missing."""
    found = differences(arm, against)
    if not found or not len(found) == len(arm) == len(against):
        return None
    size = max(abs(value) for one in (arm, against) for value in one.values() if value is not None)
    return mean_over_seeds(list(found.values()), within, size)


def mean_ratio(arm: Mapping[str, float | None], against: Mapping[str, float | None]) -> Mean | None:
    """The geometric mean of the seeds' ratios. None where a number is missing or not above 0."""
    logarithms = []
    for seed, value in arm.items():
        other = against.get(seed)
        if value is None or other is None or value <= 0 or other <= 0:
            return None
        logarithms.append(math.log(value / other))
    found = mean_over_seeds(logarithms, size=max([1.0, *map(abs, logarithms)]))
    low, high = (None if end is None else math.exp(end) for end in (found.low, found.high))
    return Mean(math.exp(found.mean), low, high, found.p)


def detectable(by_seed: Mapping[str, float], claims: int) -> float | None:
    """The true difference that so many seeds, which spread as these do, show in four of five cases,
    at the level of the strictest of the claims. None where no verdict can be had."""
    values = list(by_seed.values())
    if len(values) < FEWEST:
        return None
    return detectable_effect(len(values), LEVEL / claims) * stdev(values)


def paired_by_task(pairs: Sequence[tuple[Played, Played]]) -> ByTask | None:
    """Success of the second of two arms less that of the first, a pair of evaluations a seed. None
    where tasks or environment differ, or there are fewer than two tasks."""
    sums: dict[str, int] = {}
    counts: dict[str, int] = {}
    for first, second in pairs:
        same = first.episodes.keys() == second.episodes.keys()
        if not same or first.environment != second.environment:
            return None
        for task, successes in pairs_of(first, second).items():
            sums[task] = sums.get(task, 0) + sum(two - one for one, two in successes)
            counts[task] = counts.get(task, 0) + len(successes)
    if len(sums) < 2:
        return None
    found = difference(list(sums.values()), list(counts.values()))
    return ByTask(found.mean, *found.interval, len(sums), sum(counts.values()))


def differences(
    arm: Mapping[str, float | None], against: Mapping[str, float | None]
) -> dict[str, float]:
    return {
        seed: value - other
        for seed, value in arm.items()
        if value is not None and (other := against.get(seed)) is not None
    }


def corrected(means: Sequence[Mean | None]) -> list[float | None]:
    """Holm's correction of each p; a claim without one counts as 1."""
    given = [None if one is None else one.p for one in means]
    found = holm([1.0 if p is None else p for p in given])
    return [None if p is None else new for p, new in zip(given, found, strict=True)]


def verdict_on(
    direction: Direction,
    over_seeds: Mean | None,
    by_task: ByTask | None,
    p: float | None,
    seeds: int,
) -> tuple[Verdict, str]:
    """The verdict, and why: shown if the 95% intervals, over seeds and by task where there is one,
    lie on the claimed side of 0, and the corrected p is at most 5%; opposite if on the other
    side."""
    if over_seeds is None:
        return "no verdict", "not every run has the number"
    if seeds < FEWEST:
        return "no verdict", f"it takes {FEWEST} seeds"
    if over_seeds.low is None or over_seeds.high is None or p is None:
        return "no verdict", "seeds that are all alike give no interval"
    intervals = {"over seeds": (over_seeds.low, over_seeds.high)}
    if by_task is not None:
        intervals["by task"] = (by_task.low, by_task.high)
    holding = [name for name, (low, high) in intervals.items() if low <= 0 <= high]
    if len(holding) > 1:
        return "not shown", f"the 95% intervals {' and '.join(holding)} hold 0"
    if holding:
        return "not shown", f"the 95% interval {holding[0]} holds 0"
    if p > LEVEL:
        return "not shown", "after the correction for several claims p is above 5%"
    sides = {low > 0 for low, _ in intervals.values()}
    if len(sides) > 1:
        return "not shown", "over seeds and by task the difference has two directions"
    lie = "both 95% intervals lie" if len(intervals) > 1 else "the 95% interval over seeds lies"
    if sides == {direction == "higher"}:
        return "effect shown", f"{lie} on the claimed side of 0"
    return "opposite", f"{lie} on the other side of 0"


def t_test_power(effect: float, seeds: int, level: float = 0.05) -> float:
    """The probability that a two-sided t test of so many values is significant where their true
    mean is `effect` standard deviations; by the noncentral t distribution."""
    degrees, bound = seeds - 1, student_t(1 - level / 2, seeds - 1)
    spreads = np.linspace(0, 8, 1001)[1:]  # the estimated by the true standard deviation
    with np.errstate(under="ignore"):
        density = np.exp((degrees - 1) * np.log(spreads) + degrees * (1 - spreads**2) / 2)
    shift = effect * math.sqrt(seeds)
    tails = [
        math.erfc(-(sign * shift - bound * one) / math.sqrt(2)) / 2
        for one in spreads
        for sign in (1, -1)
    ]
    return float(density.repeat(2) @ np.array(tails) / density.sum())


def detectable_effect(seeds: int, level: float = 0.05, power: float = 0.8) -> float:
    """The true mean, in standard deviations, that `t_test_power` says is found with this
    probability."""
    low, high = 0.0, 1.0
    while t_test_power(high, seeds, level) < power:
        low, high = high, 2 * high
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (low, middle) if t_test_power(middle, seeds, level) > power else (middle, high)
    return high
