"""Changes of a number over a run, with intervals: steps are noisy, and neighbours are alike.

A change is the mean of the last third less that of the first, with a 99% interval: its error is a
moving-block bootstrap's (Künsch 1989, Ann. Stat. 17) of what is left beside a straight line, of one
seed, and its quantile Student's t, since thirds may be short. 99% and not 95%, since some thirty
numbers are looked at.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from turnwise.evaluation.intervals import student_t
from turnwise.seeds import derive

FEWEST = 9
"""Steps: thirds of three."""
LINES = 15
"""Steps from which on a line is fitted to each third."""
Z_RATES = 3.2905
"""The 99.95% quantile of the normal distribution: rates of few evaluations differ by more than
their episodes say, since the policy goes on changing."""
RESAMPLES = 400
CERTAINTY = 4.0
"""Standard errors of a fall from the best window: the best of many is high by chance."""

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Change:
    """The change from a run's first third to its last. Example: change(values).rises."""

    before: float
    after: float
    low: float
    high: float
    """Ends of the difference's 99% interval."""

    @property
    def rises(self) -> bool:
        return self.low > 0

    @property
    def falls(self) -> bool:
        return self.high < 0

    @property
    def difference(self) -> float:
        return self.after - self.before

    @property
    def factor(self) -> float:
        """The last third as a multiple of the first; infinite from 0."""
        return self.after / self.before if self.before else np.inf

    def __str__(self) -> str:
        return f"{self.before:.3g} to {self.after:.3g} (first and last part of the log)"


def change(values: Values, head: int = 3) -> Change | None:
    """The change of a number over its steps, from the first of `head` parts to the last third;
    None with fewer than `FEWEST` steps."""
    count = len(values)
    if count < FEWEST:
        return None
    first, last = values[: max(2, count // head)], values[-(count // 3) :]
    difference = float(last.mean() - first.mean())
    noise, fitted = _noise(values)
    error = np.hypot(_error(noise, len(first)), _error(noise, len(last)))
    degrees = count - fitted
    # What is left beside fitted lines is smaller than the noise was.
    reach = student_t(0.995, degrees) * float(error) * float(np.sqrt(count / degrees))
    return Change(float(first.mean()), float(last.mean()), difference - reach, difference + reach)


def _noise(values: Values) -> tuple[Values, int]:
    """The rest of each third beside a straight line, and how many numbers were fitted; beside its
    mean, where thirds are too short for a line."""
    thirds = np.array_split(values, 3)
    if len(values) < LINES:
        return np.concatenate([third - third.mean() for third in thirds]), 3
    return np.concatenate([_beside_line(third) for third in thirds]), 6


def _beside_line(values: Values) -> Values:
    places = np.arange(len(values)) - (len(values) - 1) / 2
    slope = (places @ values) / (places @ places)
    left: Values = values - values.mean() - slope * places
    return left


def _error(noise: Values, count: int) -> float:
    """The standard error of a mean of `count` neighbouring steps."""
    block = min(count, max(1, round(len(noise) ** (1 / 3))))
    random = np.random.default_rng(derive(0, "doctor", "bootstrap"))
    starts = random.integers(0, len(noise) - block + 1, (RESAMPLES, -(-count // block)))
    picked = noise[starts[..., None] + np.arange(block)].reshape(RESAMPLES, -1)[:, :count]
    return float(picked.mean(axis=1).std())


def change_of_rates(rates: Values, counts: Values) -> Change | None:
    """The change of a success rate from the first half of its evaluations to the last, each of so
    many episodes, [evaluations]; None with a single one. The interval is Agresti and Caffo's (2000,
    Am. Stat. 54), of 99.9%."""
    half = len(rates) // 2
    if not half or len(rates) != len(counts):
        return None
    played = np.array([counts[:half].sum(), counts[-half:].sum()])
    right = np.array([(rates * counts)[:half].sum(), (rates * counts)[-half:].sum()])
    before, after = right / played
    shrunk = (right + 1) / (played + 2)
    reach = Z_RATES * float(np.sqrt((shrunk * (1 - shrunk) / (played + 2)).sum()))
    middle = float(shrunk[1] - shrunk[0])
    return Change(float(before), float(after), middle - reach, middle + reach)


def fall(values: Values, steps: NDArray[np.int64]) -> tuple[int, float, float] | None:
    """The step and the mean of the best window, and the last window's mean, where it is lower by
    `CERTAINTY` standard errors; else None. A window is a sixth of the steps, three at least."""
    width = max(3, len(values) // 6)
    if len(values) < 2 * width:
        return None
    windows = np.lib.stride_tricks.sliding_window_view(values, width)
    means, spreads = windows.mean(axis=1), windows.var(axis=1, ddof=1)
    best = int(means[: -width or None].argmax())
    error = float(np.sqrt((spreads[best] + spreads[-1]) / width))
    down = float(means[best] - means[-1])
    if down <= max(CERTAINTY * error, 1e-12):
        return None
    return int(steps[best + width - 1]), float(means[best]), float(means[-1])
