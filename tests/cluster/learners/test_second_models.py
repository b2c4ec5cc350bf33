"""Promises 6 and 7 for a self-teacher and a model of process rewards: each rank has a part of what
they are beside the policy."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cluster.learners.test_learner import (
    REWARDS,
    assert_same_weights,
    loaded,
    recipe_of,
)
from tests.cluster.learners.test_saving import gone_on
from tests.cluster.learners.test_sequence import sliced
from tests.cluster.learners.test_value_head import step
from turnwise.cluster.learners.learner import DistributedLearner, DistributedSecondModel
from turnwise.cluster.learners.parts import algorithm_of
from turnwise.cluster.learners.team import Team
from turnwise.config import ImplicitRewardConfig, Recipe, SelfTeacherConfig
from turnwise.learning.policy import PolicyLearner
from turnwise.learning.signals.implicit_reward import ImplicitReward
from turnwise.learning.signals.self_teacher import SelfTeacher
from turnwise.storage import checkpoint
from turnwise.storage.tensors import read
from turnwise.types import Group

pytestmark = pytest.mark.numbers

MakeGroups = Callable[..., list[Group]]
WORDS = np.array([3, 5]), np.array([4, 5])
ALGORITHMS = {
    "self-teacher": {"name": "sdpo", "self_teacher_coefficient": 0.5, "kl_coefficient": 0.1},
    "process rewards": {"name": "prime", "kl_coefficient": 0.1},
}


def second_of(policy: PolicyLearner, recipe: Recipe) -> SelfTeacher | ImplicitReward:
    """The second model of one process."""
    learning, algorithm = recipe.learning, policy.algorithm
    if algorithm.self_teacher_coefficient:
        coefficient = algorithm.self_teacher_coefficient
        return SelfTeacher(policy.model, WORDS, SelfTeacherConfig(), learning, coefficient)
    scores = policy.reference_logprobs
    return ImplicitReward(policy.model, scores, ImplicitRewardConfig(), learning)


def divided(team: Team, recipe: Recipe) -> tuple[DistributedLearner, DistributedSecondModel]:
    """The policy and the second model of two."""
    words = WORDS if algorithm_of(recipe).self_teacher_coefficient else None
    reference = None if recipe.model.lora_rank else loaded(recipe, 2)
    policy = DistributedLearner(team, recipe, loaded(recipe, 1), reference, words)
    return policy, DistributedSecondModel(team)


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
    reference = None if lora_rank else loaded(recipe, 2)
    one = PolicyLearner(loaded(recipe, 1), reference, recipe.learning, algorithm_of(recipe))
    whole = one, second_of(one, recipe)
    policy, second = two = divided(team, recipe)
    made = [make_groups(REWARDS, seed) for seed in range(3)]
    assert_same_steps(whole, two, recipe, made[:2])
    if lora_rank or slices > 1:
        return
    state = policy.state() | {"critic": second.state()}
    policy.save(tmp_path, 1, tokenizer, {}, state, lambda: None)
    policy.wait_until_saved()
    folder = tmp_path / "step-000001"
    again = gone_on(folder, recipe, None)
    assert isinstance(again, PolicyLearner)
    model = second_of(again, recipe)
    model.load_state(read(checkpoint.load(folder).learner["critic"]))
    assert_same_steps((again, model), two, recipe, made[2:])


def assert_same_steps(one: Any, two: Any, recipe: Recipe, made: list[list[Group]]) -> None:
    """Metrics, weights and optimizers are the same after some steps."""
    for groups in made:
        (_, expected), (_, found) = (step(both, recipe, groups) for both in (one, two))
        assert found == pytest.approx(expected, rel=1e-5, abs=1e-6)
        for name in ("policy/loss", "policy/gradient_norm"):
            assert found[name] == pytest.approx(expected[name], rel=2e-6, abs=1e-6)
    assert_same_weights(one[0].model, two[0].model, one[0].state(), two[0].state())
