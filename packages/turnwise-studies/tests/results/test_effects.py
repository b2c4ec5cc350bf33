"""Effects and verdicts, by hand."""

import math
from statistics import fmean

import numpy as np
import pytest

from turnwise.evaluation.paired import Episode, Key, Played
from turnwise_studies.results.effects import (
    ByTask,
    Mean,
    corrected,
    detectable,
    differences,
    mean_difference,
    mean_over_seeds,
    mean_ratio,
    paired_by_task,
    t_test_power,
    verdict_on,
)

ABOVE, BELOW, AROUND = (ByTask(0.0, low, high, 5, 9) for low, high in [(1, 2), (-2, -1), (-1, 1)])


def mean(low: float, high: float) -> Mean:
    return Mean((low + high) / 2, low, high, 0.01)


def played(successes: dict[str, bool | None], environment: str = "e") -> Played:
    episodes = {Key(task, 0): Episode(won, 1, task) for task, won in successes.items()}
    return Played("p", environment, episodes)


def test_the_interval_over_seeds_is_students() -> None:
    """1, 2, 3: a standard error of 1 / sqrt(3), and t = 4.3027 at two degrees of freedom."""
    found = mean_over_seeds([1.0, 2.0, 3.0])
    assert (found.low, found.high) == pytest.approx((2 - 4.302653 / 3**0.5, 2 + 4.302653 / 3**0.5))
    t = 2 * 3**0.5  # with two degrees of freedom P(|t| > x) is 1 - x / sqrt(2 + x^2)
    assert found.p == pytest.approx(1 - t / math.sqrt(2 + t**2))
    assert mean_over_seeds([0.9, 1.0], (0.0, 1.0)).high == 1.0


@pytest.mark.parametrize(
    "values",
    [
        [0.5],
        [0.5, 0.5],
        [0.8 - 0.3, 0.7 - 0.2, 0.6 - 0.1],
        [0.1 + 0.2, 0.3, 0.3],
        [float(np.float32(0.3)), 0.3, 0.3],
    ],
)
def test_one_seed_and_seeds_alike_up_to_rounding_have_no_interval(values: list[float]) -> None:
    """A spread that was not seen is no estimate of the one that there is."""
    assert mean_over_seeds(values) == Mean(fmean(values), None, None, None)
    doubled = {str(seed): 2 * value for seed, value in enumerate(values)}
    single = {str(seed): value for seed, value in enumerate(values)}
    assert [getattr(mean_ratio(doubled, single), one) for one in ("low", "high", "p")] == [None] * 3


def test_differences_that_are_rounding_are_no_effect() -> None:
    """Of numbers that are equal but for their last bits, whatever the size of what is left."""
    one = {"0": 0.3, "1": 0.7, "2": 0.6}
    other = {"0": 0.1 + 0.2, "1": 0.7 + 1e-15, "2": 0.6 + 2e-16}
    for found in (mean_difference(one, other), mean_ratio(one, other)):
        assert found.p is None
        assert verdict_on("lower", found, None, None, 3)[0] == "no verdict"
    assert mean_difference(one, {"0": 0.3}) is None
    assert mean_difference({"0": 0.3}, one) is None


def test_differences_are_of_seeds_that_both_have() -> None:
    assert differences({"0": 3.0, "1": None, "2": 1.0}, {"0": 1.0, "1": 2.0}) == {"0": 2.0}


def test_a_ratio_is_the_mean_of_logarithms() -> None:
    """Halves and quarters: their geometric mean is 8^-0.5; t with one degree is 12.7."""
    found = mean_ratio({"0": 1.0, "1": 1.0}, {"0": 2.0, "1": 4.0})
    assert found.mean == pytest.approx(8**-0.5)
    assert found.high == pytest.approx(8**-0.5 * 2 ** (12.706 / 2), rel=1e-3)
    assert mean_ratio({"0": 0.0}, {"0": 2.0}) is None
    assert mean_ratio({"0": None}, {"0": 2.0}) is None
    assert mean_ratio({"0": 1.0}, {"1": 2.0}) is None


def test_tasks_are_paired_within_a_seed_and_added_over_seeds() -> None:
    first = played({"a": False, "b": False, "c": True, "d": None})
    better = played({"a": True, "b": False, "c": True, "d": True})
    found = paired_by_task([(first, better), (first, first)])
    assert (found.tasks, found.pairs) == (3, 6)
    assert found.difference == pytest.approx(1 / 6)


def test_other_tasks_or_another_environment_are_no_pairs() -> None:
    one = played({"a": True, "b": True})
    assert paired_by_task([(one, played({"a": True, "c": True}))]) is None
    assert paired_by_task([(one, played({"a": True, "b": True}, "f"))]) is None
    assert paired_by_task([(played({"a": True}), played({"a": True}))]) is None


@pytest.mark.parametrize(
    ("direction", "low", "high", "by_task", "expected"),
    [
        ("higher", 0.1, 0.2, None, "effect shown"),
        ("higher", 0.1, 0.2, ABOVE, "effect shown"),
        ("higher", 0.1, 0.2, AROUND, "not shown"),
        ("higher", 0.1, 0.2, BELOW, "not shown"),
        ("higher", -0.1, 0.2, ABOVE, "not shown"),
        ("higher", -0.2, -0.1, BELOW, "opposite"),
        ("lower", -0.2, -0.1, BELOW, "effect shown"),
        ("lower", 0.1, 0.2, None, "opposite"),
        ("higher", 0.0, 0.2, None, "not shown"),
    ],
)
def test_a_verdict_is_by_the_intervals(
    direction: str, low: float, high: float, by_task: ByTask | None, expected: str
) -> None:
    verdict, why = verdict_on(direction, mean(low, high), by_task, 0.01, 3)
    assert verdict == expected
    assert why


def test_no_verdict_is_made_of_few_seeds_of_missing_numbers_or_of_many_claims() -> None:
    assert verdict_on("higher", None, ABOVE, None, 3)[0] == "no verdict"
    for seeds in (1, 2):
        found = verdict_on("higher", mean(0.1, 0.2), ABOVE, 0.01, seeds)
        assert found == ("no verdict", "it takes 3 seeds")
    assert "correction" in verdict_on("higher", mean(0.1, 0.2), ABOVE, 0.06, 3)[1]


def test_what_could_have_been_shown() -> None:
    """By the noncentral t distribution: 80% of means of 3 that are 3.264 deviations away are found
    at 5%, as scipy's `nct` says; at 1%, as for five claims, of those at 7.320."""
    by_seed = {"0": 1.0, "1": 2.0, "2": 3.0}
    assert detectable(by_seed, 1) == pytest.approx(3.264, abs=0.01)
    assert detectable(by_seed, 5) == pytest.approx(7.320, abs=0.01)
    assert detectable({"0": 1.0, "1": 2.0}, 1) is None
    assert t_test_power(2**0.5, 3) == pytest.approx(0.2909, abs=1e-4)
    assert t_test_power(0.3, 4, 0.01) == pytest.approx(0.01515, abs=1e-4)


def test_claims_are_corrected_together() -> None:
    """Holm: the least of three p counts three times."""
    one, other = Mean(1, 0, 2, 0.01), Mean(1, 0, 2, 0.2)
    assert corrected([one, None, other]) == pytest.approx([0.03, None, 0.4])
