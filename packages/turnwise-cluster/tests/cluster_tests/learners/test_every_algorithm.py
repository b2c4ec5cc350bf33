"""Promise 6 for any micro-batches and every algorithm of the table, on two ranks."""

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cluster_tests.learners.comparing import (
    REWARDS,
    WITH_REFERENCE,
    Bench,
    assert_same_update,
    assert_same_updates,
    loaded,
    row_by_row,
)
from turnwise.algorithms.algorithm import Algorithm
from turnwise.algorithms.parts import Requirement
from turnwise.algorithms.registry import algorithm_names, row_of
from turnwise.config import Recipe
from turnwise.learning.credits import Credits
from turnwise.learning.policy import PolicyLearner
from turnwise_cluster.learners.parts import algorithm_of

pytestmark = pytest.mark.numbers


def for_a_learner(row: Algorithm) -> tuple[Any, ...]:
    """Whatever of an algorithm's row a learner computes with."""
    losses = row.objective, row.ratio_level, row.aggregation, row.divergence, row.correction
    others = row.observation_coefficient, row.success_coefficient, row.entropy_coefficient
    return (*losses, row.token_filter, *others, *sorted(row.numbers.items()))


REWARD = st.sampled_from([0.0, 0.25, 1.0])


@pytest.mark.long
@settings(
    max_examples=5,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    st.lists(st.lists(REWARD, min_size=1, max_size=4), min_size=1, max_size=4),
    st.integers(0, 99),
    st.integers(64, 600),
)
def test_neither_split_nor_padding_nor_ranks_change_a_gradient(
    bench: Bench, rewards: list[list[float]], seed: int, tokens: int
) -> None:
    """One process computes row by row, without any padding; two in micro-batches of some size."""
    recipe = bench.recipe("qwen3", WITH_REFERENCE, tokens_per_micro_batch=tokens)
    groups = bench.groups([[0.0, 1.0], *rewards], seed)
    one = PolicyLearner(
        loaded(recipe, 1), loaded(recipe, 2), row_by_row(recipe).learning, algorithm_of(recipe)
    )
    assert_same_updates(one, bench.pair(recipe)[1], [groups])


OF_ONE_PROCESS = {
    Requirement.SAMPLER,
    Requirement.REPLAY,
    Requirement.WORLD_MODEL,
    Requirement.ACCEPTANCE,
}
ROWS = [row for row in map(row_of, algorithm_names()) if not row.needs & OF_ONE_PROCESS]
DIFFERENT = {for_a_learner(row): row.name for row in ROWS}.values()


@pytest.mark.slow
@pytest.mark.parametrize("name", DIFFERENT)
def test_every_algorithm_of_the_table_is_the_same_on_two_ranks(bench: Bench, name: str) -> None:
    """Objective, denominators, clip, correction, filter on tokens, other losses; of rows that have
    all of these in common, one. Of advantages, which are estimated before ranks are asked for
    anything, each token has some. A self-teacher's loss is left out here, and so are rows that one
    process alone learns by."""
    recipe = named(bench.recipe("qwen3", {"name": "grpo"}), name)
    one, two = bench.pair(recipe)
    groups, generator = bench.groups(REWARDS), np.random.default_rng(3)
    members = [member for group in groups for member in group.graded]
    advantages = {
        member.id: generator.normal(size=len(member.tokens)).astype(np.float32)
        for member in members
    }
    assert_same_update(one, two, groups, Credits(advantages, frozenset(advantages)))


def named(recipe: Recipe, algorithm: str) -> Recipe:
    """The recipe with an algorithm, whatever else it would need in a run."""
    changed = recipe.algorithm.model_copy(update={"name": algorithm})
    return recipe.model_copy(update={"algorithm": changed})
