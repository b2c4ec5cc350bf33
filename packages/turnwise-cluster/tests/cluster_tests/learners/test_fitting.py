"""Settings by which larger models fit make the updates that are made without them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from cluster_tests.learners.test_learner import REWARDS, assert_same_updates, pair, recipe_of
from turnwise.types import Group
from turnwise_cluster.learners.team import Team

pytestmark = pytest.mark.numbers

MakeGroups = Callable[..., list[Group]]


@pytest.mark.long
def test_an_optimizer_in_the_processors_memory_makes_the_same_updates(
    team: Team, model_folders: dict[str, Path], make_groups: MakeGroups
) -> None:
    plain = recipe_of(model_folders["gemma2"], {"name": "grpo"})
    offloaded = recipe_of(model_folders["gemma2"], {"name": "grpo"}, offload_optimizer=True)
    one, two = pair(team, plain)[0], pair(team, offloaded)[1]
    assert_same_updates(one, two, [make_groups(REWARDS, seed) for seed in range(2)])
