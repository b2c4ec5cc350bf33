"""Promises 6 and 7 for a value head: each rank has a part of its body, which is the policy's, and
the head whole."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.cluster.learners.test_learner import (
    REWARDS,
    assert_same_optimizers,
    assert_same_weights,
    loaded,
    pair,
    recipe_of,
)
from tests.cluster.learners.test_saving import gone_on
from tests.cluster.learners.test_sequence import sliced
from turnwise.cluster.learners.learner import DistributedLearner, DistributedSecondModel
from turnwise.cluster.learners.parts import algorithm_of
from turnwise.cluster.learners.team import Team
from turnwise.config import Recipe, ValueHeadConfig
from turnwise.learning.credits import estimate
from turnwise.learning.learner import Learner
from turnwise.learning.signals.choice import auxiliary_loss_of
from turnwise.learning.signals.critic import Critic
from turnwise.learning.signals.value_head import ValueHead
from turnwise.storage import checkpoint
from turnwise.storage.tensors import read
from turnwise.types import Group

pytestmark = pytest.mark.numbers

MakeGroups = Callable[..., list[Group]]
Both = tuple[Learner, Critic | DistributedSecondModel]


def recipe_with_head(model: Path, lora_rank: int = 0) -> Recipe:
    head = {"kind": "head", "learning_rate": 1e-2, "body_coefficient": 0.5}
    return recipe_of(
        model, {"name": "ppo", "kl_coefficient": 0.1, "critic": head}, lora_rank, updates_per_step=2
    )


def with_head(recipe: Recipe, policy: Learner) -> Both:
    """A policy and its head, on as many processes; the head is not 0, as it is at first."""
    critic: Critic | DistributedSecondModel
    if isinstance(policy, DistributedLearner):
        critic = DistributedSecondModel(policy.team)
    else:
        assert isinstance(recipe.algorithm.critic, ValueHeadConfig)
        critic = ValueHead(policy.model, recipe.algorithm.critic, recipe.learning)
    weight = torch.linspace(-1, 1, 32)[None]
    critic.load_state(
        critic.state() | {"weights": {"head.weight": weight, "head.bias": weight[0, :1]}}
    )
    return policy, critic


def step(both: Both, recipe: Recipe, groups: list[Group]) -> tuple[list[Any], dict[str, float]]:
    """Make a step as a run does; returns values and metrics."""
    policy, critic = both
    signals = critic.measure(groups)
    credits = estimate(groups, signals, algorithm_of(recipe))
    own = critic.own if isinstance(critic, DistributedSecondModel) else critic
    report = policy.update(groups, credits, auxiliary=auxiliary_loss_of(own, signals))
    assert not report.problems
    values = [signals.of(member).values for group in groups for member in group.graded]
    return values, report.metrics | critic.update(groups, signals, credits)


def assert_same_steps(one: Both, two: Both, recipe: Recipe, made: list[list[Group]]) -> None:
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
    assert_same_weights(one[0].model, two[0].model, one[0].state(), two[0].state())
    head, other = one[1].state(), two[1].state()
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
    one, two = (with_head(recipe, learner) for learner in pair(team, recipe))
    made = [make_groups(REWARDS, seed) for seed in range(3)]
    assert_same_steps(one, two, recipe, made[:2])
    if lora_rank or slices > 1:
        return
    policy, critic = two
    assert isinstance(policy, DistributedLearner)
    policy.save(
        tmp_path, 1, tokenizer, {}, policy.state() | {"critic": critic.state()}, lambda: None
    )
    policy.wait_until_saved()
    folder = tmp_path / "step-000001"
    saved = checkpoint.load(folder).learner["critic"]
    again = with_head(recipe, gone_on(folder, recipe, None))
    again[1].load_state(read(saved))
    assert_same_steps(again, two, recipe, made[2:])


@pytest.mark.long
def test_a_value_that_is_no_number_moves_no_rank(
    team: Team, model_folders: dict[str, Path], make_groups: MakeGroups
) -> None:
    recipe = recipe_with_head(model_folders["qwen3"])
    policy, critic = with_head(recipe, pair(team, recipe)[1])
    groups, before = make_groups(REWARDS), loaded(recipe, 1)
    signals = critic.measure(groups)
    credits = estimate(groups, signals, algorithm_of(recipe))
    bad = critic.state()["weights"] | {"head.bias": torch.full([1], float("nan"))}
    critic.load_state(critic.state() | {"weights": bad})
    assert isinstance(critic, DistributedSecondModel)
    report = policy.update(groups, credits, auxiliary=auxiliary_loss_of(critic.own, signals))
    assert set(report.problems) == {"the value loss is nan"}
    assert all(map(torch.equal, policy.model.parameters(), before.parameters()))
