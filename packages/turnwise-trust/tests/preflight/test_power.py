"""The power analysis against simulations of the test that `compare-runs` makes."""

import numpy as np
import pytest
from numpy.typing import NDArray

from turnwise.evaluation.paired import difference, mcnemar
from turnwise_trust.preflight.power import (
    SAME_TASKS,
    Difficulty,
    detectable,
    detects,
    difficulty,
    tasks_needed,
)

TRIALS = 1200


def rates(of: Difficulty, effect: float, shape: tuple[int, ...], stream: np.random.Generator):
    """Rates of tasks for two policies, of beta distributions: the second one is better by the
    effect. A task has the same rank for both, or else its ranks have nothing to do with each other,
    so often that the rates have the correlation that is assumed."""
    total = 1 / of.likeness - 1
    means = of.success, of.success + effect
    sorted_rates = [np.sort(stream.beta(m * total, (1 - m) * total, 200_000)) for m in means]
    same = SAME_TASKS / np.corrcoef(*sorted_rates)[0, 1]
    ranks = stream.integers(200_000, size=shape)
    others = np.where(stream.random(shape) < same, ranks, stream.integers(200_000, size=shape))
    return sorted_rates[0][ranks], sorted_rates[1][others]


def power(of: Difficulty, effect: float, tasks: int, episodes: int, seed: int = 0) -> float:
    """The share of simulated comparisons that find the effect."""
    stream = np.random.default_rng(seed)
    one, two = rates(of, effect, (TRIALS, tasks), stream)
    sums = stream.binomial(episodes, two) - stream.binomial(episodes, one)
    return float(np.mean([_p(row, episodes) <= 0.05 for row in sums]))


def _p(sums: NDArray[np.int64], episodes: int) -> float:
    if episodes == 1:
        return mcnemar(int((sums < 0).sum()), int((sums > 0).sum()))
    return difference(sums, np.full(len(sums), episodes)).p


CASES = [
    pytest.param(Difficulty(0.5, 0.3), 0.10, 1, id="one episode"),
    pytest.param(Difficulty(0.2, 0.5), 0.10, 4, id="four episodes"),
    pytest.param(Difficulty(0.6, 0.7), 0.15, 8, id="alike"),
    pytest.param(Difficulty(0.05, 0.2), 0.10, 2, id="seldom"),
]


@pytest.mark.long
@pytest.mark.parametrize(("of", "effect", "episodes"), CASES)
def test_the_tasks_are_those_that_simulation_asks_for_within_10_percent(
    of: Difficulty, effect: float, episodes: int
):
    needed = tasks_needed(of, effect, episodes)
    assert power(of, effect, round(0.9 * needed), episodes) < 0.8
    assert power(of, effect, round(1.1 * needed), episodes) > 0.8


@pytest.mark.parametrize("likeness", [0.1, 0.5, 0.9])
def test_the_likeness_of_a_tasks_episodes_is_found_in_their_counts(likeness: float):
    stream, total = np.random.default_rng(1), 1 / likeness - 1
    rates = stream.beta(0.3 * total, 0.7 * total, 4000)
    sizes = stream.integers(2, 9, 4000)
    successes = stream.binomial(sizes, rates)
    found = difficulty({str(n): pair for n, pair in enumerate(zip(sizes, successes, strict=True))})
    assert found.success == pytest.approx(0.3, abs=0.02)
    assert found.likeness == pytest.approx(likeness, abs=0.03)
    assert found.measured


@pytest.mark.parametrize(
    "counts", [{}, {"a": (8, 0), "b": (8, 0)}, {"a": (1, 1), "b": (1, 0)}, {"a": (8, 3)}]
)
def test_a_likeness_that_cannot_be_measured_is_the_worst(counts: dict[str, tuple[int, int]]):
    found = difficulty(counts)
    assert (found.likeness, found.measured) == (1.0, False)


@pytest.mark.parametrize("episodes", [1, 4])
@pytest.mark.parametrize(("success", "effect"), [(0.4, 0.05), (0.9, 0.095)])
def test_the_tasks_of_an_effect_detect_it_and_one_less_does_not(
    success: float, effect: float, episodes: int
):
    of = Difficulty(success, 0.5)
    needed = tasks_needed(of, effect, episodes)
    assert detects(of, effect, needed, episodes)
    assert not detects(of, effect, needed - 1, episodes)
    seen = detectable(of, needed, episodes)
    assert seen is not None
    assert seen <= effect < seen + 0.001


def test_there_is_an_answer_for_each_difficulty_and_size():
    for success in np.linspace(0, 1, 21):
        for likeness in (0.0, 0.3, 1.0):
            for tasks, episodes in ((2, 1), (12, 1), (40, 4), (500, 8)):
                seen = detectable(Difficulty(float(success), likeness), tasks, episodes)
                assert seen is None or 0 < seen <= 1
