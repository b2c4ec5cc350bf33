"""The age of a step's tokens: updates between the weights that sampled them and their update.

`pipeline.py` bounds it by pacing admission, `algorithms/corrections.py` corrects for it.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from turnwise.types import Group


class StalenessError(RuntimeError):
    """Tokens are older than the bound, or newer than the weights."""


def staleness_of(groups: Sequence[Group], step: int) -> NDArray[np.int64]:
    """int64, `step`, the version that the update begins with, less that of each token graded
    members sampled."""
    members = [member for group in groups for member in group.graded]
    versions = [member.tokens.version[member.tokens.mask] for member in members]
    return step - np.concatenate([np.empty(0, np.int64), *versions])


def check_staleness(groups: Sequence[Group], step: int, max_staleness: int) -> None:
    """Raise StalenessError for a token that is older than the bound, or newer than the weights."""
    found = staleness_of(groups, step)
    if len(found) and not 0 <= found.min() <= found.max() <= max_staleness:
        raise StalenessError(
            f"update {step} has tokens that are {found.min()} to {found.max()} updates old; "
            f"the bound is {max_staleness}"
        )


def staleness_metrics(groups: Sequence[Group], step: int) -> dict[str, float]:
    """Mean and maximum over sampled tokens of graded members, if any."""
    found = staleness_of(groups, step)
    if not len(found):
        return {}
    return {"staleness/mean": float(found.mean()), "staleness/max": float(found.max())}
