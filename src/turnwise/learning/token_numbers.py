"""The numbers of single tokens that an update measures beside its gradient."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from turnwise.types import Group, TrajectoryId

NUMBERS = np.dtype([("logprob", np.float32), ("entropy", np.float32), ("loss_weight", np.float32)])
"""A trained token's log-probability and entropy in the first pass, at the sampling temperature and
in nats, and the factor of its objective in its batch's loss (`TokenLosses.weights`)."""
TokenNumbers = Mapping[TrajectoryId, NDArray[np.void]]
"""NUMBERS[n] for each trajectory of n tokens; NaN where a token was not trained."""


def no_numbers(groups: Sequence[Group], trained: frozenset[TrajectoryId]) -> TokenNumbers:
    unknown = np.full(1, np.nan, np.float32).astype(NUMBERS)
    return {
        member.id: np.repeat(unknown, len(member.tokens))
        for group in groups
        for member in group.graded
        if member.id in trained
    }


def together(parts: Sequence[TokenNumbers]) -> TokenNumbers:
    first, *others = parts
    for part in others:
        for name, row in part.items():
            np.copyto(first[name], row, where=~np.isnan(row["loss_weight"]))
    return first
