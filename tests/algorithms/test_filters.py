"""Which groups and which trajectories are trained on."""

import numpy as np
import pytest

from tests.algorithms.declared import functions
from turnwise.algorithms.filters import (
    TrajectoryFacts,
    TurnFacts,
    every,
    top_spread,
    top_variance,
    unequal,
)

TRAJECTORY_FILTERS = functions("trajectory_filter")


def rewards(*groups: list[float]) -> list[np.ndarray]:
    return [np.array(group, np.float64) for group in groups]


BATCH = rewards([1, 1], [0, 1], [0, 0.2], [], [0.5], [0, 0.4])


def test_every_group_or_those_that_differ() -> None:
    assert every(BATCH) == [True] * 6
    assert unequal(BATCH) == [False, True, True, False, False, True]


@pytest.mark.parametrize(
    ("share", "kept"), [(0.0, [1]), (0.25, [1, 5]), (0.5, [1, 2, 5]), (1.0, [1, 2, 5])]
)
def test_the_largest_spreads_are_kept(share: float, kept: list[int]) -> None:
    """Two of six at 25%; those that are all equal never, whatever the share."""
    assert [index for index, keep in enumerate(top_spread(BATCH, share)) if keep] == kept


@pytest.mark.parametrize(
    ("mass", "kept"), [(0.5, [1]), (0.9, [1, 5]), (0.99, [1, 2, 5]), (0.0, [])]
)
def test_most_of_the_variance_is_kept(mass: float, kept: list[int]) -> None:
    """Variances 0.25, 0.01 and 0.04: shares 0.833, 0.033 and 0.133."""
    assert [index for index, keep in enumerate(top_variance(BATCH, mass)) if keep] == kept


def test_ties_keep_the_earlier_group() -> None:
    assert top_spread(rewards([0, 1], [1, 0]), 0.5) == [True, False]


def test_nothing_is_kept_of_nothing() -> None:
    for keep in (lambda batch: top_spread(batch, 0.5), lambda batch: top_variance(batch, 0.9)):
        assert keep([]) == []
        assert keep(rewards([1, 1], [0, 0])) == [False, False]


ACTED, VOID = TurnFacts(acted=True), TurnFacts(acted=False)
FAILED, REPEATED = TurnFacts(True, failed=True), TurnFacts(True, repeated=True)


@pytest.mark.parametrize(
    ("facts", "keepers"),
    [
        (
            TrajectoryFacts(False, [ACTED, ACTED]),
            {"none", "overlong", "void_turns", "void_results"},
        ),
        (TrajectoryFacts(True, [ACTED, ACTED]), {"none", "void_turns", "void_results"}),
        (TrajectoryFacts(False, [ACTED, VOID, ACTED]), {"none", "overlong"}),
        (TrajectoryFacts(False, [ACTED, FAILED, ACTED]), {"none", "overlong", "void_turns"}),
        (TrajectoryFacts(False, [ACTED, REPEATED]), {"none", "overlong", "void_turns"}),
        (TrajectoryFacts(True, [VOID]), {"none"}),
        (TrajectoryFacts(True, []), {"none", "void_turns", "void_results"}),
    ],
)
def test_which_filter_keeps_a_trajectory(facts: TrajectoryFacts, keepers: set[str]) -> None:
    assert {name for name, keep in TRAJECTORY_FILTERS.items() if keep(facts)} == keepers
