"""Promises 6 and 7 for value heads, self-teachers and models of process rewards: each rank has a
part of what they are beside the policy; a head is whole on each."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from cluster_tests.learners.comparing import (
    REWARDS,
    Bench,
    assert_same_optimizers,
    assert_same_weights,
    begun_alike,
    gone_on,
    loaded,
    step,
)
from turnwise.config import Recipe
from turnwise.learning.credits import estimate
from turnwise.learning.learner import Learner
from turnwise.learning.signals.value_head import ValueHead
from turnwise.parts.one_process import RunLearner
from turnwise.types import Group
from turnwise_cluster.learners.learner import DistributedLearner
from turnwise_cluster.learners.parts import algorithm_of

pytestmark = pytest.mark.numbers

Assert = Callable[[Learner, Learner, Recipe, list[list[Group]]], None]
WORDS = np.array([3, 5]), np.array([4, 5])
HEAD = {"kind": "head", "learning_rate": 1e-2, "body_coefficient": 0.5}
ALGORITHMS: dict[str, dict[str, Any]] = {
    "self-teacher": {"name": "sdpo", "self_teacher_coefficient": 0.5, "kl_coefficient": 0.1},
    "feedback teacher": {"name": "hero", "kl_coefficient": 0.1},
    "process rewards": {"name": "prime", "kl_coefficient": 0.1},
    "head": {"name": "ppo", "kl_coefficient": 0.1, "critic": HEAD},
}


def recipe_of_kind(bench: Bench, kind: str, family: str, lora_rank: int, slices: int) -> Recipe:
    updates = {"updates_per_step": 2} if kind == "head" else {}
    given = {"lora_rank": lora_rank, "slices": slices, **updates}
    return bench.recipe(family, ALGORITHMS[kind], **given)


def pair_with_head(
    bench: Bench, recipe: Recipe, bias: float = -1.0
) -> tuple[RunLearner, DistributedLearner]:
    """Learners of one process and of two; their head is not 0, as it is at first."""
    one, two = bench.pair(recipe)
    head = one.second
    weights = {"head.weight": torch.linspace(-1, 1, 32)[None], "head.bias": torch.full([1], bias)}
    head.load_state(head.state() | {"weights": weights})
    begun_alike(one, two, bench.folder / "begun", bench.tokenizer)
    return one, two


def assert_same_steps(one: Learner, two: Learner, recipe: Recipe, made: list[list[Group]]) -> None:
    """Metrics, weights and optimizers are the same after some steps; values of a head, of several
    units, as far as the policies that they are read off may be apart."""
    has_head = isinstance(one, RunLearner) and isinstance(one.second, ValueHead)
    for groups in made:
        (ours, expected), (theirs, found) = (step(both, recipe, groups) for both in (one, two))
        assert found == pytest.approx(expected, rel=1e-5, abs=1e-6)
        tight = 0.0 if has_head else 1e-6
        for name in ("policy/gradient_norm", "policy/loss")[: 1 if has_head else 2]:
            assert found[name] == pytest.approx(expected[name], rel=2e-6, abs=tight)
        for own, other in zip(ours, theirs, strict=True) if has_head else ():
            np.testing.assert_allclose(own, other, 1e-5, 1e-5)
    assert_same_weights(one.model, two.model, one.state(), two.state())
    if has_head:
        head, other = one.state()["critic"], two.state()["critic"]
        assert head["weights"].keys() == {"head.weight", "head.bias"}
        assert_same_optimizers(
            head["weights"], other["weights"], head["optimizer"], other["optimizer"]
        )


def slow(*case: Any) -> Any:
    return pytest.param(*case, marks=pytest.mark.slow)


@pytest.mark.long
@pytest.mark.parametrize(
    ("family", "lora_rank", "slices"),
    [("qwen3", 0, 1), slow("gemma2", 0, 1), slow("gemma2", 2, 1), slow("qwen3", 0, 2)],
)
def test_a_head_of_two_ranks_is_that_of_one_and_either_goes_on(
    bench: Bench, family: str, lora_rank: int, slices: int
) -> None:
    """Its gradient reaches the policy's body, in the same updates."""
    recipe = recipe_of_kind(bench, "head", family, lora_rank, slices)
    one, two = pair_with_head(bench, recipe)
    made = bench.made(3)
    assert_same_steps(one, two, recipe, made[:2])
    if lora_rank or slices > 1:
        return
    assert_same_steps(gone_on(bench.save(two), recipe, None), two, recipe, made[2:])


@pytest.mark.wing("algorithms")
@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "family", "lora_rank", "slices"),
    [
        ("self-teacher", "qwen3", 0, 1),
        ("process rewards", "qwen3", 0, 1),
        slow("feedback teacher", "qwen3", 0, 1),
        slow("self-teacher", "gemma2", 2, 1),
        slow("process rewards", "gemma2", 2, 1),
        slow("self-teacher", "gemma2", 0, 1),
        slow("self-teacher", "qwen3", 0, 2),
        slow("process rewards", "qwen3", 0, 2),
    ],
)
def test_second_models_of_two_ranks_are_those_of_one_and_one_goes_on(
    bench: Bench, kind: str, family: str, lora_rank: int, slices: int
) -> None:
    recipe = recipe_of_kind(bench, kind, family, lora_rank, slices)
    one, two = bench.pair(recipe, WORDS)
    made = bench.made(3)
    assert_same_steps(one, two, recipe, made[:2])
    if lora_rank or slices > 1:
        return
    assert_same_steps(gone_on(bench.save(two), recipe, None, WORDS), two, recipe, made[2:])


@pytest.mark.long
def test_a_value_that_is_no_number_moves_no_rank(bench: Bench) -> None:
    recipe = recipe_of_kind(bench, "head", "qwen3", 0, 1)
    groups, before = bench.groups(REWARDS), loaded(recipe, 1)
    good, _ = pair_with_head(bench, recipe)
    signals = good.second.measure(groups)
    credits = estimate(groups, signals, algorithm_of(recipe))
    _, two = pair_with_head(bench, recipe, bias=float("nan"))
    report = two.update(groups, credits, auxiliary=two.auxiliary_loss(signals))
    assert set(report.problems) == {"the value loss is nan"}
    assert all(map(torch.equal, two.model.parameters(), before.parameters()))
