"""The power of a t test over seeds: which effects so few runs can show."""

import math

import numpy as np

from turnwise.evaluation.intervals import student_t


def t_test_power(effect: float, seeds: int, level: float = 0.05) -> float:
    """The probability that a two-sided t test of so many values is significant where their true
    mean is `effect` standard deviations; by the noncentral t distribution.

    >>> round(t_test_power(2 / 2**0.5, 3), 2), round(t_test_power(2 / 2**0.5, 5), 2)
    (0.29, 0.66)
    """
    degrees, bound = seeds - 1, student_t(1 - level / 2, seeds - 1)
    spreads = np.linspace(0, 8, 1001)[1:]  # the estimated by the true standard deviation
    with np.errstate(under="ignore"):
        density = np.exp((degrees - 1) * np.log(spreads) + degrees * (1 - spreads**2) / 2)
    shift = effect * math.sqrt(seeds)
    found = [_normal(shift - bound * one) + _normal(-shift - bound * one) for one in spreads]
    return float(density @ np.array(found) / density.sum())


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


def _normal(value: float) -> float:
    return math.erfc(-value / math.sqrt(2)) / 2
