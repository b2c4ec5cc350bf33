"""Promises 6 and 7 for a value head: each rank has a part of its body, which is the policy's, and
the head whole."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cluster_tests.learners.test_learner import (
    REWARDS,
    assert_same_optimizers,
    assert_same_weights,
    begun_alike,
    loaded,
    pair,
    recipe_of,
)
from cluster_tests.learners.test_saving import gone_on, save
from cluster_tests.learners.test_sequence import sliced
from turnwise.config import Recipe
from turnwise.learning.credits import estimate
from turnwise.learning.learner import Learner
from turnwise.learning.signals.value_head import ValueHead
from turnwise.parts.one_process import RunLearner
from turnwise.types import Group
from turnwise_cluster.learners.learner import DistributedLearner
from turnwise_cluster.learners.parts import algorithm_of
from turnwise_cluster.learners.team import Team

pytestmark = pytest.mark.numbers

MakeGroups = Callable[..., list[Group]]


def recipe_with_head(model: Path, lora_rank: int = 0) -> Recipe:
    head = {"kind": "head", "learning_rate": 1e-2, "body_coefficient": 0.5}
    return recipe_of(
        model, {"name": "ppo", "kl_coefficient": 0.1, "critic": head}, lora_rank, updates_per_step=2
    )


def pair_with_head(
    team: Team, recipe: Recipe, folder: Path, tokenizer: Any, bias: float = -1.0
) -> tuple[RunLearner, DistributedLearner]:
    """Learners of one process and of two; their head is not 0, as it is at first."""
    one, two = pair(team, recipe)
    head = one.second
    assert isinstance(head, ValueHead)
    weights = {
        "head.weight": torch.linspace(-1, 1, 32)[None],
        "head.bias": torch.full([1], bias),
    }
    head.load_state(head.state() | {"weights": weights})
    begun_alike(one, two, folder, tokenizer)
    return one, two


def step(
    learner: Learner, recipe: Recipe, groups: list[Group]
) -> tuple[list[Any], dict[str, float]]:
    """Make a step as a run does; returns values and metrics."""
    second = learner.second
    assert second is not None
    signals = second.measure(groups)
    credits = estimate(groups, signals, algorithm_of(recipe))
    report = learner.update(groups, credits, auxiliary=learner.auxiliary_loss(signals))
    assert not report.problems
    values = [signals.of(member).values for group in groups for member in group.graded]
    return values, report.metrics | second.update(groups, signals, credits)


def assert_same_steps(one: Learner, two: Learner, recipe: Recipe, made: list[list[Group]]) -> None:
    """Steps, policies, heads and optimizers are the same; values, of several units, as far as the
    policies that they are read off may be apart."""
    for groups in made:
        (ours, expected), (theirs, found) = (step(both, recipe, groups) for both in (one, two))
        assert found == pytest.approx(expected, rel=1e-5, abs=1e-6)
        assert found["policy/gradient_norm"] == pytest.approx(
            expected["policy/gradient_norm"], rel=2e-6
        )
        for own, other in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(own, other, 1e-5, 1e-5)
    assert_same_weights(one.model, two.model, one.state(), two.state())
    head, other = one.state()["critic"], two.state()["critic"]
    assert head["weights"].keys() == {"head.weight", "head.bias"}
    assert_same_optimizers(head["weights"], other["weights"], head["optimizer"], other["optimizer"])


@pytest.mark.long
@pytest.mark.parametrize(
    ("family", "lora_rank", "slices"),
    [
        ("qwen3", 0, 1),
        pytest.param("gemma2", 0, 1, marks=pytest.mark.slow),
        pytest.param("gemma2", 2, 1, marks=pytest.mark.slow),
        pytest.param("qwen3", 0, 2, marks=pytest.mark.slow),
    ],
)
def test_a_head_of_two_ranks_is_that_of_one_and_either_goes_on(
    team: Team,
    model_folders: dict[str, Path],
    make_groups: MakeGroups,
    tokenizer: Any,
    tmp_path: Path,
    family: str,
    lora_rank: int,
    slices: int,
) -> None:
    """Its gradient reaches the policy's body, in the same updates."""
    recipe = sliced(recipe_with_head(model_folders[family], lora_rank), 2, slices)
    one, two = pair_with_head(team, recipe, tmp_path / "begun", tokenizer)
    made = [make_groups(REWARDS, seed) for seed in range(3)]
    assert_same_steps(one, two, recipe, made[:2])
    if lora_rank or slices > 1:
        return
    again = gone_on(save(two, tmp_path, tokenizer), recipe, None)
    assert_same_steps(again, two, recipe, made[2:])


@pytest.mark.long
def test_a_value_that_is_no_number_moves_no_rank(
    team: Team,
    model_folders: dict[str, Path],
    make_groups: MakeGroups,
    tokenizer: Any,
    tmp_path: Path,
) -> None:
    recipe = recipe_with_head(model_folders["qwen3"])
    begun = tmp_path, tokenizer
    groups, before = make_groups(REWARDS), loaded(recipe, 1)
    good, _ = pair_with_head(team, recipe, *begun)
    assert good.second is not None
    signals = good.second.measure(groups)
    credits = estimate(groups, signals, algorithm_of(recipe))
    _, two = pair_with_head(team, recipe, *begun, bias=float("nan"))
    report = two.update(groups, credits, auxiliary=two.auxiliary_loss(signals))
    assert set(report.problems) == {"the value loss is nan"}
    assert all(map(torch.equal, two.model.parameters(), before.parameters()))
