"""Promise 6 where ranks compute each row together, a slice of its tokens each."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cluster_tests.learners.test_learner import (
    ALGORITHMS,
    REWARDS,
    assert_same_critics,
    assert_same_updates,
    pair,
    recipe_of,
)
from turnwise.config import Recipe
from turnwise.types import Group
from turnwise_cluster.learners.team import Team

pytestmark = pytest.mark.numbers

MakeGroups = Callable[..., list[Group]]


def sliced(recipe: Recipe, learners: int, slices: int) -> Recipe:
    cluster = recipe.cluster.model_copy(update={"learners": learners, "sequence_ranks": slices})
    return recipe.model_copy(update={"cluster": cluster})


@pytest.mark.long
@pytest.mark.parametrize(
    "algorithm",
    [ALGORITHMS[1], *(pytest.param(a, marks=pytest.mark.slow) for a in ALGORITHMS[2:])],
    ids=lambda algorithm: algorithm["name"],
)
def test_two_slices_make_the_update_of_one(
    team: Team, model_folders: dict[str, Path], make_groups: MakeGroups, algorithm: dict[str, Any]
) -> None:
    """Rows of different lengths, of which one slice may have no trained token at all; a KL term
    and entropies, ratios of whole sequences, and what is ranked or computed again."""
    recipe = sliced(recipe_of(model_folders["qwen3"], algorithm, updates_per_step=2), 2, 2)
    assert_same_updates(*pair(team, recipe), [make_groups(REWARDS, seed) for seed in range(2)])


@pytest.mark.slow
def test_a_critic_of_two_slices(
    team: Team, model_folders: dict[str, Path], make_groups: MakeGroups
) -> None:
    recipe = recipe_of(model_folders["llama"], {"name": "ppo"})
    learners = pair(team, sliced(recipe, 2, 2))
    assert_same_critics(*learners, [make_groups(REWARDS, seed) for seed in range(2)])
