"""Intervals against published values, tables of Student's t, and simulated truth."""

import math

import numpy as np
import pytest

from benchmarks.intervals import CASES, Case, coverage
from turnwise.evaluation.intervals import (
    Z_95,
    clustered,
    design_effect,
    student_t,
    student_t_probability,
    wilson,
)

T_TABLE = {(0.975, 1): 12.7062, (0.975, 2): 4.3027, (0.975, 9): 2.2622, (0.95, 30): 1.6973}
"""Two-sided 95% and 90% points, as printed in Fisher and Yates's tables."""


@pytest.mark.parametrize(
    ("successes", "count", "low", "high"),
    [
        (0, 1000, 0.0, 0.0038),
        (14, 1000, 0.0084, 0.0234),
        (500, 1000, 0.4691, 0.5309),
        (19, 50, 0.2586, 0.5185),
        (1000, 1000, 0.9962, 1.0),
        (0, 0, 0.0, 1.0),
    ],
)
def test_wilson_against_published_values(
    successes: int, count: int, low: float, high: float
) -> None:
    assert wilson(successes, count) == pytest.approx((low, high), abs=2e-4)


def test_student_t_against_tables() -> None:
    for (probability, degrees), value in T_TABLE.items():
        assert student_t(probability, degrees) == pytest.approx(value, abs=1e-4)
    assert student_t(0.975, 100_000) == pytest.approx(Z_95, abs=1e-4)


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 17, 50])
def test_student_t_against_its_density(degrees: int) -> None:
    """The density summed over small steps."""
    steps = np.linspace(-1.3, 2.1, 200_001)
    scale = math.gamma((degrees + 1) / 2) / math.gamma(degrees / 2)
    scale /= math.sqrt(degrees * math.pi)
    density = scale * (1 + steps**2 / degrees) ** (-(degrees + 1) / 2)
    found = student_t_probability(2.1, degrees) - student_t_probability(-1.3, degrees)
    assert found == pytest.approx(np.trapezoid(density, steps), abs=1e-9)


def test_the_design_effect_by_hand() -> None:
    """Tasks that always go the same way count once, whatever is played of each; episodes that have
    nothing to do with their tasks count each."""
    same = np.array([0, 1] * 5000)
    assert design_effect(4 * same, np.full(10_000, 4)) == pytest.approx(4, rel=1e-3)
    apart = np.random.default_rng(0).binomial(4, 0.5, 100_000)
    assert design_effect(apart, np.full(100_000, 4)) == pytest.approx(1, rel=0.02)


def test_one_episode_a_task_is_about_wilson() -> None:
    sums = np.array([1] * 300 + [0] * 700)
    assert clustered(sums, np.ones(1000)) == pytest.approx(wilson(300, 1000), abs=2e-4)


def test_tasks_of_different_sizes_by_hand() -> None:
    """Miller's formula in a loop, without what is added for few tasks."""
    generator = np.random.default_rng(1)
    counts = generator.integers(1, 6, 4000)
    sums = generator.binomial(counts, generator.beta(1, 1, 4000))
    mean = sums.sum() / counts.sum()
    squares = sum((int(s) - int(n) * mean) ** 2 for s, n in zip(sums, counts, strict=True))
    error = math.sqrt(4000 / 3999 * squares) / counts.sum()
    low, high = clustered(sums, counts)
    assert (low, high) == pytest.approx((mean - Z_95 * error, mean + Z_95 * error), abs=2e-4)


def test_no_interval_leaves_0_to_1_or_claims_certainty() -> None:
    counts = np.full(100, 8)
    low, high = clustered(np.zeros(100), counts)
    assert (low, high) == pytest.approx((0, wilson(0, 100).high), abs=2e-3)
    assert clustered(counts, counts) == pytest.approx((1 - high, 1))
    assert clustered([3], [4]) == clustered([], []) == (0, 1)


@pytest.mark.long
@pytest.mark.parametrize("case", CASES, ids=str)
def test_intervals_hold_the_truth_as_often_as_they_say(case: Case) -> None:
    """95%, to within what 2,000 draws can tell (2 points are four standard errors)."""
    assert coverage(case, draws=2000, seed=7) == pytest.approx(0.95, abs=0.02)
