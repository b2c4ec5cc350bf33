"""Promise 6 with rows that some of the ranks compute together, beside those of others."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from cluster_tests.learners.test_learner import (
    ALGORITHMS,
    REWARDS,
    assert_same_updates,
    pair,
    recipe_of,
)
from cluster_tests.learners.test_sequence import sliced
from turnwise.types import Group
from turnwise_cluster.learners.team import Team

pytestmark = [pytest.mark.numbers, pytest.mark.slow]

MakeGroups = Callable[..., list[Group]]


@pytest.fixture(scope="module")
def four(kept_team: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    kept_team.close()
    team = Team(4, torch.device("cpu"), 1, 120.0, tmp_path_factory.mktemp("four"))
    yield team
    team.close()


@pytest.mark.parametrize("slices", [2, 4])
def test_slices_make_the_update_of_one(
    four: Team, model_folders: dict[str, Path], make_groups: MakeGroups, slices: int
) -> None:
    """Two pairs; then four slices for two heads of keys, which are repeated for them."""
    recipe = sliced(recipe_of(model_folders["llama"], ALGORITHMS[1]), 4, slices)
    assert_same_updates(*pair(four, recipe), [make_groups(REWARDS, seed) for seed in range(2)])
