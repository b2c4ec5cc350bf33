"""Promise 6 for groups that are computed as trees: each tree stays on one rank."""

from pathlib import Path

import pytest

from cluster_tests.learners.test_learner import assert_same_updates, pair, recipe_of
from tests.learning.test_shared_prefixes import group
from turnwise.algorithms import make_algorithm
from turnwise.learning.batch import policy_examples
from turnwise.learning.credits import estimate
from turnwise.learning.shared_prefixes import build_prefix_trees
from turnwise.learning.signals.base import Signals
from turnwise.types import Group
from turnwise_cluster.learners.team import Team

pytestmark = pytest.mark.numbers

MOST = 64
"""Tokens of a micro-batch: those of one tree."""
MADE: list[list[Group]] = [
    [group("a", [20, 21, 22, 23, 24]), group("b", [30, 31]), group("c", [*range(30, 45)])],
    [group("a", [*range(7, 20)])],
]
"""Groups of two steps: of one a rank has more trees than the other, of the other one has none."""


def test_each_group_is_one_tree_or_two() -> None:
    """So that the comparison is of trees."""
    algorithm = make_algorithm("grpo", {})
    for groups, count in zip(MADE, (3, 1), strict=True):
        credits = estimate(groups, Signals(), algorithm)
        examples = policy_examples(groups, credits, algorithm, True)
        trees, others = build_prefix_trees(examples, 32, MOST)
        assert (len(trees), len(others)) == (count, 0)


@pytest.mark.long
def test_two_ranks_make_the_update_of_one(team: Team, model_folders: dict[str, Path]) -> None:
    """With a KL term, the entropy, and log-probabilities that are computed again."""
    algorithm = {"name": "dapo", "kl_coefficient": 0.1, "entropy_coefficient": 0.01}
    corrected = {**algorithm, "correction": "truncated"}
    recipe = recipe_of(
        model_folders["qwen3"], corrected, share_prefixes=True, tokens_per_micro_batch=MOST
    )
    assert_same_updates(*pair(team, recipe), MADE)
