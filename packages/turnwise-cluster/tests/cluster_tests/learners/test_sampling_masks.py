"""Promise 6 for sampling masks: ranks learn over the tokens that one process learns over."""

from collections.abc import Callable
from pathlib import Path

import pytest

from cluster_tests.learners.test_learner import (
    ALGORITHMS,
    REWARDS,
    assert_same_updates,
    pair,
    recipe_of,
)
from cluster_tests.learners.test_sequence import sliced
from tests.learning.building import drawn_among_some, each
from turnwise.learning.credits import estimate
from turnwise.learning.policy import PolicyLearner
from turnwise.learning.signals.base import Signals
from turnwise.types import Group
from turnwise_cluster.learners.team import Team

pytestmark = pytest.mark.numbers

MakeGroups = Callable[..., list[Group]]


@pytest.mark.long
@pytest.mark.parametrize(
    ("family", "slices"),
    [("qwen3", 1), ("gemma2", 1), pytest.param("qwen3", 2, marks=pytest.mark.slow)],
)
def test_two_ranks_make_the_update_of_one(
    team: Team, model_folders: dict[str, Path], make_groups: MakeGroups, family: str, slices: int
) -> None:
    """With a KL term and entropies, where each has rows of its own and where they share them."""
    recipe = sliced(recipe_of(model_folders[family], ALGORITHMS[1]), 2, slices)
    one, other = pair(team, recipe)
    whole = make_groups(REWARDS, 1)
    groups = each(whole, drawn_among_some)
    assert_same_updates(one, other, [groups])
    assert isinstance(one, PolicyLearner)
    gaps = [
        one.update(some, estimate(some, Signals(), one.algorithm)).metrics["policy/logprob_gap"]
        for some in (groups, whole)
    ]
    assert abs(gaps[0] - gaps[1]) > 0.01
