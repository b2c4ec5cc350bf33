"""Promises 6 and 7 for a self-teacher and a model of process rewards: each rank has a part of what
they are beside the policy."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster_tests.learners.test_learner import (
    REWARDS,
    assert_same_weights,
    pair,
    recipe_of,
)
from cluster_tests.learners.test_saving import gone_on, save
from cluster_tests.learners.test_sequence import sliced
from cluster_tests.learners.test_value_head import step
from turnwise.config import Recipe
from turnwise.learning.learner import Learner
from turnwise.types import Group
from turnwise_cluster.learners.team import Team

pytestmark = [pytest.mark.numbers, pytest.mark.wing("algorithms")]

MakeGroups = Callable[..., list[Group]]
WORDS = np.array([3, 5]), np.array([4, 5])
ALGORITHMS = {
    "self-teacher": {"name": "sdpo", "self_teacher_coefficient": 0.5, "kl_coefficient": 0.1},
    "process rewards": {"name": "prime", "kl_coefficient": 0.1},
}


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "family", "lora_rank", "slices"),
    [
        ("self-teacher", "qwen3", 0, 1),
        ("process rewards", "qwen3", 0, 1),
        pytest.param("self-teacher", "gemma2", 2, 1, marks=pytest.mark.slow),
        pytest.param("process rewards", "gemma2", 2, 1, marks=pytest.mark.slow),
        pytest.param("self-teacher", "gemma2", 0, 1, marks=pytest.mark.slow),
        pytest.param("self-teacher", "qwen3", 0, 2, marks=pytest.mark.slow),
        pytest.param("process rewards", "qwen3", 0, 2, marks=pytest.mark.slow),
    ],
)
def test_second_models_of_two_ranks_are_those_of_one_and_one_goes_on(
    team: Team,
    model_folders: dict[str, Path],
    make_groups: MakeGroups,
    tokenizer: Any,
    tmp_path: Path,
    kind: str,
    family: str,
    lora_rank: int,
    slices: int,
) -> None:
    recipe = sliced(recipe_of(model_folders[family], ALGORITHMS[kind], lora_rank), 2, slices)
    one, two = pair(team, recipe, WORDS)
    made = [make_groups(REWARDS, seed) for seed in range(3)]
    assert_same_steps(one, two, recipe, made[:2])
    if lora_rank or slices > 1:
        return
    again = gone_on(save(two, tmp_path, tokenizer), recipe, None, WORDS)
    assert_same_steps(again, two, recipe, made[2:])


def assert_same_steps(one: Learner, two: Learner, recipe: Recipe, made: list[list[Group]]) -> None:
    """Metrics, weights and optimizers are the same after some steps."""
    for groups in made:
        (_, expected), (_, found) = (step(both, recipe, groups) for both in (one, two))
        assert found == pytest.approx(expected, rel=1e-5, abs=1e-6)
        for name in ("policy/loss", "policy/gradient_norm"):
            assert found[name] == pytest.approx(expected[name], rel=2e-6, abs=1e-6)
    assert_same_weights(one.model, two.model, one.state(), two.state())
