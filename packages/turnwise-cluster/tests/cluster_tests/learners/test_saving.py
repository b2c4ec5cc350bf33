"""Promise 7 for checkpoints of several processes: any number of them goes on from what any other
number has written, training goes on meanwhile, and a full disk leaves the last good one.
Reactions go back to an earlier one."""

import resource
import threading
import time
from typing import Any

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
from turnwise.errors import InfrastructureError
from turnwise.storage import checkpoint
from turnwise.storage.tensors import read
from turnwise_cluster.learners.saving import Saving

pytestmark = pytest.mark.numbers


class Held:
    """A tokenizer that is written, before any weight, when it is told to be."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self.go_on = threading.Event()

    def save_pretrained(self, save_directory: str) -> None:
        """Wait, and write it."""
        assert self.go_on.wait(60)
        self._tokenizer.save_pretrained(save_directory)


@pytest.mark.long
@pytest.mark.parametrize("divided_first", [True, False])
def test_one_and_two_processes_go_on_from_what_either_has_written(
    bench: Bench, divided_first: bool
) -> None:
    """And make the updates of a learner that never stopped."""
    recipe = bench.recipe("qwen3", WITH_REFERENCE)
    first = updated(bench.pair(recipe)[divided_first], recipe, bench.groups(REWARDS, 1))
    folder = bench.save(first)
    through = first if not divided_first else gone_on(folder, recipe, None)
    assert_same_updates(through, gone_on(folder, recipe, bench.team), [bench.groups(REWARDS, 2)])
    again = gone_on(folder, recipe, None)
    moments = again.state()["moments"]["model.embed_tokens.weight"]
    assert moments["step"] == 1
    assert moments["exp_avg"].any()


@pytest.mark.long
def test_a_checkpoint_has_the_weights_of_the_moment_it_was_begun(bench: Bench) -> None:
    """Not those of updates made while it is written; none is lost of a model with tied weights."""
    recipe = bench.recipe("qwen3", WITH_REFERENCE)
    _, two = bench.pair(recipe)
    before = {name: weight.clone() for name, weight in two.model.state_dict().items()}
    held, done = Held(bench.tokenizer), threading.Event()
    two.save(bench.folder, 1, held, {}, two.state(), done.set)
    for seed in range(3):
        updated(two, recipe, bench.groups(REWARDS, seed))
    assert checkpoint.latest(bench.folder) is None
    held.go_on.set()
    two.wait_until_saved()
    assert done.is_set()
    found = AutoModelForCausalLM.from_pretrained(bench.folder / "step-000001").state_dict()
    assert found.keys() == before.keys()
    assert all(torch.equal(weight, found[name]) for name, weight in before.items())
    moments = read(checkpoint.load(bench.folder / "step-000001").learner)["moments"]
    assert not any(one["exp_avg"].any() for one in moments.values())


@pytest.mark.long
def test_a_disk_that_is_full_for_one_rank_leaves_the_last_good_checkpoint(bench: Bench) -> None:
    """In the files of weights, and in those of moments; the next one is saved again."""
    recipe = bench.recipe("qwen3", WITH_REFERENCE)
    _, two = bench.pair(recipe)
    good = bench.save(two)
    worker = bench.team._arrivals[1].process
    most = resource.prlimit(worker, resource.RLIMIT_FSIZE)
    files = ("model-00002-of-00002", "learner/shard-00002-model-00001-of-00001")
    for name in files:
        limit = (good / f"{name}.safetensors").stat().st_size - 1
        resource.prlimit(worker, resource.RLIMIT_FSIZE, (limit, most[1]))
        with pytest.raises(InfrastructureError, match=r"File too large.*step-000001"):
            bench.save(two, 2)
        assert [path.name for path in bench.folder.iterdir()] == ["step-000001"]
    resource.prlimit(worker, resource.RLIMIT_FSIZE, most)
    assert checkpoint.load(bench.save(two, 2)).step == 2


def test_all_waiting_for_a_checkpoint_together_has_one_deadline() -> None:
    """Whoever has waited in vain once does not wait again."""
    saving, end = Saving(0.5), threading.Event()
    saving.begin(lambda: end.wait(60), "the checkpoint of step 1")
    begun = time.monotonic()
    for _ in range(6):
        with pytest.raises(InfrastructureError, match=r"not done within cluster.seconds = 0\.5"):
            saving.wait()
    assert time.monotonic() - begun < 2.5
    end.set()


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
    """And go on as one process does from there; a rank that went on faster would be seen."""
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
