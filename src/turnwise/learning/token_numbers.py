"""The numbers of single tokens that an update measures beside its gradient, for the run's
record."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from turnwise.types import Group, TrajectoryId

NUMBERS = np.dtype([("logprob", np.float32), ("entropy", np.float32), ("loss_weight", np.float32)])
"""Numbers of a trained token, in the first pass over it: its log-probability under the policy, the
entropy of the distribution that it is of, both at the sampling temperature and in nats, and the
factor of its objective in the loss of its optimizer batch (`TokenLosses.weights`)."""
TokenNumbers = Mapping[TrajectoryId, NDArray[np.void]]
"""NUMBERS[n] for each trajectory of n tokens; NaN where a token was not trained."""


def no_numbers(groups: Sequence[Group], trained: frozenset[TrajectoryId]) -> TokenNumbers:
    """The numbers of the trained trajectories' tokens, before anything is known of them."""
    unknown = np.full(1, np.nan, np.float32).astype(NUMBERS)
    return {
        member.id: np.repeat(unknown, len(member.tokens))
        for group in groups
        for member in group.graded
        if member.id in trained
    }


def together(parts: Sequence[TokenNumbers]) -> TokenNumbers:
    """Join what each rank knows of the same trajectories."""
    first, *others = parts
    for part in others:
        for name, row in part.items():
            np.copyto(first[name], row, where=~np.isnan(row["loss_weight"]))
    return first
