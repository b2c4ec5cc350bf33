"""Two policies on the same tasks: which one is better, and how sure that is.

Each task is its own control, so what makes tasks hard or easy cancels out, and a smaller difference
can be seen than between policies on tasks of their own. That two intervals overlap is no test.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import comb
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from turnwise.errors import DataError
from turnwise.evaluation.intervals import student_t, student_t_probability
from turnwise.types import Trajectory

POWER = 0.8
"""The probability to find the smallest difference that counts as detectable."""


class Key(NamedTuple):
    """The name of an episode that two evaluations may both have."""

    task: str
    episode: int


class Episode(NamedTuple):
    """The end of an evaluation's episode."""

    success: bool | None
    """None where it has no grade."""
    seed: int
    prompt: str


@dataclass(frozen=True)
class Played:
    """An evaluation, as comparisons see it."""

    name: str
    environment: str
    """Name, version and data hash of its environment."""
    episodes: Mapping[Key, Episode]

    @classmethod
    def of(cls, name: str, environment: str, trajectories: Sequence[Trajectory]) -> "Played":
        """An evaluation that was just made."""
        return cls(
            name,
            environment,
            {
                Key(one.task.id, one.episode): Episode(
                    one.verdict.success if one.outcome.graded and one.verdict else None,
                    one.seed,
                    one.task.prompt,
                )
                for one in trajectories
            },
        )


@dataclass(frozen=True)
class Comparison:
    """The second of two policies less the first, on the same tasks."""

    first: str
    second: str
    tasks: int
    """Tasks with a pair: an episode of each that has a grade."""
    pairs: int
    left_out: int
    """Episodes whose counterpart, or that themselves, have no grade."""
    same_seeds: bool
    """Whether the episodes of a pair had the same seed, too."""
    success_first: float
    success_second: float
    only_first: int
    """Pairs in which only the first policy succeeded."""
    only_second: int
    difference: float
    low: float
    """The 95% interval of the difference, clustered by task."""
    high: float
    p: float
    """The probability of so large a difference, in either direction, between equal policies:
    McNemar's exact test for one episode a task, else Student's t of the clustered error."""
    p_corrected: float
    """`p` with Holm's correction for all comparisons that are made together."""
    detectable: float
    """The smallest true difference that so many pairs find at 5% with a probability of `POWER`."""

    @property
    def verdict(self) -> str:
        """A sentence for people."""
        if self.p_corrected > 0.05:
            return (
                "no difference that luck could not make; one of "
                f"{100 * self.detectable:.1f} points would likely have been found"
            )
        better = self.second if self.difference > 0 else self.first
        return f"{better} is better"


class Difference(NamedTuple):
    """A mean paired difference and its error. Example: difference([1, 0, -1], [1, 1, 1])."""

    mean: float
    centre: float
    """The middle of the interval."""
    error: float
    """The clustered standard error."""
    degrees: int
    """Tasks less one."""

    @property
    def interval(self) -> tuple[float, float]:
        """The 95% interval, within -1 and 1."""
        spread = student_t(0.975, self.degrees) * self.error
        return max(-1.0, self.centre - spread), min(1.0, self.centre + spread)

    @property
    def p(self) -> float:
        """The two-sided probability of so large a difference where there is none."""
        return 2 * (1 - student_t_probability(abs(self.centre) / self.error, self.degrees))


def compare_all(evaluations: Sequence[Played]) -> list[Comparison]:
    """Compare each pair of evaluations, with Holm's correction; raises as `compare`."""
    found = [compare(one, other) for one, other in combinations(evaluations, 2)]
    return corrected(found)


def corrected(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """The comparisons with Holm's correction for their number."""
    corrections = holm([one.p for one in comparisons])
    return [replace(one, p_corrected=p) for one, p in zip(comparisons, corrections, strict=True)]


def compare(first: Played, second: Played) -> Comparison:
    """Compare two evaluations. Raises DataError for those of other tasks or environments."""
    _check_same(first, second)
    by_task = pairs_of(first, second)
    if len(by_task) < 2:
        raise DataError(
            f"{first.name} and {second.name} have grades for {len(by_task)} of the same tasks: a "
            "comparison needs 2 or more"
        )
    sums = [sum(two - one for one, two in pairs) for pairs in by_task.values()]
    counts = [len(pairs) for pairs in by_task.values()]
    found = difference(sums, counts)
    cells = Counter(pair for pairs in by_task.values() for pair in pairs)
    only_first, only_second = cells[True, False], cells[False, True]
    p = mcnemar(only_first, only_second) if max(counts) == 1 else found.p
    pairs = sum(counts)
    # As in formulas for sample sizes: what the test asks for, and what its power does.
    quantiles = student_t(0.975, found.degrees) + student_t(POWER, found.degrees)
    low, high = found.interval
    return Comparison(
        first.name,
        second.name,
        tasks=len(by_task),
        pairs=pairs,
        left_out=len(first.episodes) - pairs,
        same_seeds=all(
            one.seed == second.episodes[key].seed for key, one in first.episodes.items()
        ),
        success_first=(cells[True, True] + only_first) / pairs,
        success_second=(cells[True, True] + only_second) / pairs,
        only_first=only_first,
        only_second=only_second,
        difference=found.mean,
        low=low,
        high=high,
        p=p,
        p_corrected=p,
        detectable=min(1.0, quantiles * found.error),
    )


def pairs_of(first: Played, second: Played) -> dict[str, list[tuple[bool, bool]]]:
    """Both policies' successes in every pair of episodes that both have a grade, by task."""
    found: dict[str, list[tuple[bool, bool]]] = {}
    for key, one in first.episodes.items():
        two = second.episodes.get(key)
        if two is not None and one.success is not None and two.success is not None:
            found.setdefault(key.task, []).append((one.success, two.success))
    return found


def difference(sums: ArrayLike, counts: ArrayLike) -> Difference:
    """The mean of paired differences, with an error clustered by task.

    `sums` (float[tasks]) are sums of differences in [-1, 1] over the pairs of each task, `counts`
    (int[tasks], above 0) how many these are; two tasks and more. The error is Miller's paired one
    (2024, arXiv 2411.00640, equation 8, clustered), after two more tasks are counted, in which one
    pair speaks for either side: with one pair a task that is the interval of Bonett and Price
    (2012, J. Educ. Behav. Stat. 37), which holds where few pairs differ, too.
    """
    totals, sizes = np.asarray(sums, np.float64), np.asarray(counts, np.float64)
    size, tasks = sizes.mean(), len(totals) + 2
    pairs = sizes.sum() + 2 * size
    centre = totals.sum() / pairs
    squares = ((totals - sizes * centre) ** 2).sum()
    # The two added tasks, whose sums are 1 and -1 over `size` pairs each.
    squares += (1 - size * centre) ** 2 + (1 + size * centre) ** 2
    error = math.sqrt(tasks / (tasks - 1) * squares) / pairs
    mean = float(totals.sum() / sizes.sum())
    # The degrees of freedom are of the tasks that were played, without the two added ones.
    return Difference(mean, float(centre), error, len(totals) - 1)


def mcnemar(only_first: int, only_second: int) -> float:
    """McNemar's exact test: the two-sided probability of so uneven a split of the pairs that
    differ, were both policies as good.

    >>> mcnemar(0, 6)
    0.03125
    """
    count, fewer = only_first + only_second, min(only_first, only_second)
    tail = sum(comb(count, number) for number in range(fewer + 1))
    return min(1.0, float(2 * tail / 2**count))


def holm(probabilities: Sequence[float]) -> list[float]:
    """Correct p-values for their number, in the order given: below 5%, the chance that any of them
    is luck is below 5%.

    Source: Holm 1979, Scand. J. Statist. 6.

    >>> holm([0.01, 0.5, 0.02])
    [0.03, 0.5, 0.04]
    """
    order = sorted(range(len(probabilities)), key=lambda place: probabilities[place])
    adjusted, least = [0.0] * len(probabilities), 0.0
    for rank, place in enumerate(order):
        # The maximum: no p-value may come out below that of a smaller one.
        least = max(least, min(1.0, (len(order) - rank) * probabilities[place]))
        adjusted[place] = least
    return adjusted


def _check_same(first: Played, second: Played) -> None:
    names = f"{first.name} and {second.name}"
    if first.environment != second.environment:
        raise DataError(
            f"{names} cannot be compared: {first.environment} and {second.environment} are not the "
            "same environment and data; evaluate both on one"
        )
    if first.episodes.keys() != second.episodes.keys():
        common = len(first.episodes.keys() & second.episodes.keys())
        raise DataError(
            f"{names} cannot be compared: they have {common} episodes of the same tasks in common, "
            f"of {len(first.episodes)} and {len(second.episodes)}; evaluate both with the same "
            "evaluation.tasks, evaluation.seed and evaluation.episodes_per_task"
        )
    other = [
        key.task for key, one in first.episodes.items() if one.prompt != second.episodes[key].prompt
    ]
    if other:
        raise DataError(
            f"{names} cannot be compared: task {other[0]!r} has another prompt in each; evaluate "
            "both on the same data"
        )
