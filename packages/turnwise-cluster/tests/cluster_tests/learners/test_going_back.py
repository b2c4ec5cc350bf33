"""Reactions on several processes: `roll_back`, to weights and optimizer of an earlier checkpoint,
and one of the user's own."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from cluster_tests.learners.test_learner import (
    RATE,
    REWARDS,
    assert_same_updates,
    pair,
    recipe_of,
)
from cluster_tests.learners.test_saving import WITH_REFERENCE, gone_on, save, updated
from turnwise.storage import checkpoint
from turnwise.types import Group
from turnwise_cluster.learners.learner import DistributedLearner
from turnwise_cluster.learners.team import Team

pytestmark = pytest.mark.numbers

MakeGroups = Callable[..., list[Group]]


@pytest.mark.long
def test_weights_that_a_reaction_writes_into_reach_all_ranks(
    team: Team, model_folders: dict[str, Path], make_groups: MakeGroups
) -> None:
    """As they count for one process, between two updates; where nothing was written, nothing
    changes."""
    recipe = recipe_of(model_folders["gemma2"], WITH_REFERENCE)
    one, two = pair(team, recipe)
    two.broadcast()
    assert_same_updates(one, two, [make_groups(REWARDS, 1)])
    for learner in (one, two):
        weight = next(learner.model.parameters())
        weight.data.mul_(0.5)
    two.broadcast()
    assert_same_updates(one, two, [make_groups(REWARDS, 2)])


@pytest.mark.long
@pytest.mark.parametrize("family", ["qwen3", pytest.param("gemma2", marks=pytest.mark.slow)])
def test_ranks_go_back_to_a_checkpoint_and_keep_the_lowered_rate(
    team: Team,
    model_folders: dict[str, Path],
    make_groups: MakeGroups,
    tokenizer: Any,
    tmp_path: Path,
    family: str,
) -> None:
    """And go on as one process does from there."""
    recipe = recipe_of(model_folders[family], WITH_REFERENCE)
    two = updated(pair(team, recipe)[1], recipe, make_groups(REWARDS, 1))
    folder = save(two, tmp_path, tokenizer)
    updated(two, recipe, make_groups(REWARDS, 2))
    assert isinstance(two, DistributedLearner)
    kept = AutoModelForCausalLM.from_pretrained(folder)
    assert not all(map(torch.equal, two.model.parameters(), kept.parameters()))
    two.take_weights(kept)
    two.load_state(checkpoint.load(folder).learner | {"learning_rate_factor": 0.25})
    assert two.lower_learning_rate(0.5) == RATE / 8
    one = gone_on(folder, recipe, None)
    one.lower_learning_rate(0.125)
    assert_same_updates(one, two, [make_groups(REWARDS, 3)])
