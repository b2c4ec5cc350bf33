"""Agreement of judgements with gold labels: accuracy, Cohen's kappa, and ranking.

Kappa is the agreement beyond what the two label frequencies give by chance: Cohen 1960, Educ.
Psychol. Meas. 20. Its standard error for large samples: Fleiss, Cohen & Everitt 1969, Psychol.
Bull. 72.
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from turnwise.evaluation.intervals import Z_95, wilson


@dataclass(frozen=True)
class Agreement:
    """Agreement with gold labels, as fractions, with 95% intervals; NaN for what does not exist."""

    n: int
    """Labels that were compared."""
    missing: int
    """Gold labels without a label: left out of all else."""
    accuracy: float
    accuracy_interval: tuple[float, float]
    """Wilson's interval."""
    kappa: float
    """Cohen's, from -1 to 1; chance gives 0."""
    kappa_interval: tuple[float, float]
    """NaN where the labels do not vary enough to tell its error."""


def agreement(judged: Sequence[Hashable | None], gold: Sequence[Hashable]) -> Agreement:
    """Compare labels with gold labels, one by one; None is a missing one.

    >>> agreement([True, False, None], [True, True, True]).accuracy
    0.5
    """
    pairs = [(one, other) for one, other in zip(judged, gold, strict=True) if one is not None]
    right = sum(one == other for one, other in pairs)
    kappa, spread = _kappa(pairs)
    known = spread > 0  # where it is 0, labels are all of one kind or all right: no estimate
    return Agreement(
        n=len(pairs),
        missing=len(gold) - len(pairs),
        accuracy=right / len(pairs) if pairs else math.nan,
        accuracy_interval=wilson(right, len(pairs)),
        kappa=kappa,
        kappa_interval=(max(-1.0, kappa - spread), min(1.0, kappa + spread))
        if known
        else (math.nan, math.nan),
    )


def ranking(scores: Sequence[float], gold: Sequence[bool]) -> float:
    """The probability that a good one has a higher score than a bad one, ties counted half (the
    area under the ROC curve). NaN scores are left out; NaN where only one kind is left.

    >>> ranking([0.9, 0.4, 0.4], [True, True, False])
    0.75
    """
    known = [(score, good) for score, good in zip(scores, gold, strict=True) if score == score]
    good = np.array([score for score, is_good in known if is_good])
    bad = np.array([score for score, is_good in known if not is_good])
    if not len(good) or not len(bad):
        return math.nan
    higher = (good[:, None] > bad).mean() + (good[:, None] == bad).mean() / 2
    return float(higher)


def _kappa(pairs: Sequence[tuple[Hashable, Hashable]]) -> tuple[float, float]:
    """Kappa and half of its interval; NaN where both sides have one and the same label alone."""
    labels = sorted({label for pair in pairs for label in pair}, key=repr)
    places = {label: place for place, label in enumerate(labels)}
    counts = np.zeros((len(labels), len(labels)))
    for one, other in pairs:
        counts[places[one], places[other]] += 1
    share = counts / len(pairs)
    rows, columns = share.sum(1), share.sum(0)
    observed, chance = float(np.trace(share)), float(rows @ columns)
    if len(labels) < 2:
        return math.nan, math.nan
    kappa = (observed - chance) / (1 - chance)
    both = rows + columns
    on = np.diag(share) @ ((1 - chance) - both * (1 - observed)) ** 2
    off = share * (columns[:, None] + rows[None, :]) ** 2
    apart = (1 - observed) ** 2 * (off.sum() - np.trace(off))
    variance = on + apart - (observed * chance - 2 * chance + observed) ** 2
    error = math.sqrt(max(float(variance), 0.0) / len(pairs)) / (1 - chance) ** 2
    return kappa, Z_95 * error
