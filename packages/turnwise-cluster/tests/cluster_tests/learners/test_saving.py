"""Promise 7 for checkpoints of several processes: any number of them goes on from what any other
number has written, training goes on meanwhile, and a full disk leaves the last good one."""

import resource
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from cluster_tests.learners.test_learner import (
    REWARDS,
    alone,
    assert_same_updates,
    by_own_layers,
    loaded,
    pair,
    recipe_of,
)
from turnwise.config import Recipe
from turnwise.errors import InfrastructureError
from turnwise.learning.credits import estimate
from turnwise.learning.learner import Learner
from turnwise.learning.signals.base import Signals
from turnwise.learning.signals.makers import Words
from turnwise.storage import checkpoint
from turnwise.storage.tensors import read
from turnwise.types import Group
from turnwise_cluster.learners.learner import DistributedLearner
from turnwise_cluster.learners.parts import algorithm_of
from turnwise_cluster.learners.saving import Saving
from turnwise_cluster.learners.team import Team

pytestmark = pytest.mark.numbers

MakeGroups = Callable[..., list[Group]]
WITH_REFERENCE = {"name": "dapo", "kl_coefficient": 0.1}


def save(learner: Learner, root: Path, tokenizer: Any, step: int = 1) -> Path:
    """A learner's checkpoint, whole."""
    learner.save(root, step, tokenizer, {}, learner.state(), lambda: None)
    learner.wait_until_saved()
    return root / f"step-{step:06d}"


def gone_on(folder: Path, recipe: Recipe, team: Team | None, words: Words | None = None) -> Learner:
    """The learner of a checkpoint, of a team's processes or of one."""
    model = by_own_layers(AutoModelForCausalLM.from_pretrained(folder))
    given = recipe, model, loaded(recipe, 2), words
    learner = alone(*given) if team is None else DistributedLearner(team, *given)
    learner.load_state(checkpoint.load(folder).learner)
    return learner


def updated(learner: Learner, recipe: Recipe, groups: list[Group]) -> Learner:
    learner.update(groups, estimate(groups, Signals(), algorithm_of(recipe)))
    return learner


def names_in(folder: Path) -> dict[str, torch.Size]:
    """The names and shapes of the weights in a model's folder."""
    files = [load_file(path) for path in folder.glob("*.safetensors")]
    return {name: tensor.shape for file in files for name, tensor in file.items()}


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
    team: Team,
    model_folders: dict[str, Path],
    make_groups: MakeGroups,
    tokenizer: Any,
    tmp_path: Path,
    divided_first: bool,
) -> None:
    """And make the updates of a learner that never stopped."""
    recipe = recipe_of(model_folders["qwen3"], WITH_REFERENCE)
    first = updated(pair(team, recipe)[divided_first], recipe, make_groups(REWARDS, 1))
    folder = save(first, tmp_path, tokenizer)
    through = first if not divided_first else gone_on(folder, recipe, None)
    assert_same_updates(through, gone_on(folder, recipe, team), [make_groups(REWARDS, 2)])
    again = gone_on(folder, recipe, None)
    moments = again.state()["moments"]["model.embed_tokens.weight"]
    assert moments["step"] == 1
    assert moments["exp_avg"].any()


@pytest.mark.long
def test_a_checkpoint_has_the_weights_of_the_moment_it_was_begun(
    team: Team,
    model_folders: dict[str, Path],
    make_groups: MakeGroups,
    tokenizer: Any,
    tmp_path: Path,
) -> None:
    """Not those of updates made while it is written; none is lost of a model with tied weights."""
    recipe = recipe_of(model_folders["qwen3"], WITH_REFERENCE)
    _, two = pair(team, recipe)
    before = {name: weight.clone() for name, weight in two.model.state_dict().items()}
    held, done = Held(tokenizer), threading.Event()
    two.save(tmp_path, 1, held, {}, two.state(), done.set)
    for seed in range(3):
        updated(two, recipe, make_groups(REWARDS, seed))
    assert checkpoint.latest(tmp_path) is None
    held.go_on.set()
    two.wait_until_saved()
    assert done.is_set()
    found = AutoModelForCausalLM.from_pretrained(tmp_path / "step-000001").state_dict()
    assert found.keys() == before.keys()
    assert all(torch.equal(weight, found[name]) for name, weight in before.items())
    moments = read(checkpoint.load(tmp_path / "step-000001").learner)["moments"]
    assert not any(one["exp_avg"].any() for one in moments.values())


@pytest.mark.long
def test_a_disk_that_is_full_for_one_rank_leaves_the_last_good_checkpoint(
    team: Team, model_folders: dict[str, Path], tokenizer: Any, tmp_path: Path
) -> None:
    """In the files of weights, and in those of moments; the next one is saved again."""
    recipe = recipe_of(model_folders["qwen3"], WITH_REFERENCE)
    _, two = pair(team, recipe)
    good = save(two, tmp_path, tokenizer)
    worker = team._arrivals[1].process
    most = resource.prlimit(worker, resource.RLIMIT_FSIZE)
    files = ("model-00002-of-00002", "learner/shard-00002-model-00001-of-00001")
    for name in files:
        limit = (good / f"{name}.safetensors").stat().st_size - 1
        resource.prlimit(worker, resource.RLIMIT_FSIZE, (limit, most[1]))
        with pytest.raises(InfrastructureError, match=r"File too large.*step-000001"):
            save(two, tmp_path, tokenizer, 2)
        assert [path.name for path in tmp_path.iterdir()] == ["step-000001"]
    resource.prlimit(worker, resource.RLIMIT_FSIZE, most)
    assert checkpoint.load(save(two, tmp_path, tokenizer, 2)).step == 2


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
