"""Reactions on several processes: `roll_back`, to weights and optimizer of an earlier checkpoint,
and one of the user's own."""

import pytest
import torch
from transformers import AutoModelForCausalLM

from cluster_tests.learners.comparing import (
    RATE,
    REWARDS,
    WITH_REFERENCE,
    Bench,
    assert_same_updates,
    gone_on,
    updated,
)
from turnwise.storage import checkpoint

pytestmark = pytest.mark.numbers


@pytest.mark.long
def test_weights_that_a_reaction_writes_into_reach_all_ranks(bench: Bench) -> None:
    """As they count for one process, between two updates; where nothing was written, nothing
    changes."""
    recipe = bench.recipe("gemma2", WITH_REFERENCE)
    one, two = bench.pair(recipe)
    two.broadcast()
    assert_same_updates(one, two, [bench.groups(REWARDS, 1)])
    for learner in (one, two):
        weight = next(learner.model.parameters())
        weight.data.mul_(0.5)
    two.broadcast()
    assert_same_updates(one, two, [bench.groups(REWARDS, 2)])


@pytest.mark.long
@pytest.mark.parametrize("family", ["qwen3", pytest.param("gemma2", marks=pytest.mark.slow)])
def test_ranks_go_back_to_a_checkpoint_and_keep_the_lowered_rate(bench: Bench, family: str) -> None:
    """And go on as one process does from there."""
    recipe = bench.recipe(family, WITH_REFERENCE)
    two = updated(bench.pair(recipe)[1], recipe, bench.groups(REWARDS, 1))
    folder = bench.save(two)
    updated(two, recipe, bench.groups(REWARDS, 2))
    kept = AutoModelForCausalLM.from_pretrained(folder)
    assert not all(map(torch.equal, two.model.parameters(), kept.parameters()))
    two.take_weights(kept)
    two.load_state(checkpoint.load(folder).learner | {"learning_rate_factor": 0.25})
    assert two.lower_learning_rate(0.5) == RATE / 8
    one = gone_on(folder, recipe, None)
    one.lower_learning_rate(0.125)
    assert_same_updates(one, two, [bench.groups(REWARDS, 3)])
