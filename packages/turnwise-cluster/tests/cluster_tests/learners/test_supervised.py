"""Promise 6 for demonstrations: a step does not depend on the number of processes that make it."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from cluster_tests.learners.test_learner import assert_same_weights, loaded, recipe_of
from turnwise.config import SftConfig
from turnwise.learning.sft import SupervisedLearner, supervised
from turnwise.storage import checkpoint
from turnwise.storage.checkpoint import Saveable
from turnwise.storage.tensors import read
from turnwise.types import Group
from turnwise_cluster.learners.learner import DistributedOffline
from turnwise_cluster.learners.team import Team

pytestmark = pytest.mark.numbers

MakeGroups = Callable[..., list[Group]]


@pytest.mark.long
@pytest.mark.parametrize(("lora_rank", "batch_size"), [(0, 3), (2, 1)])
def test_two_ranks_imitate_as_one_does_and_one_goes_on(
    team: Team,
    model_folders: dict[str, Path],
    make_groups: MakeGroups,
    tokenizer: Saveable,
    tmp_path: Path,
    lora_rank: int,
    batch_size: int,
) -> None:
    """Of a batch of one demonstration a rank has none."""
    recipe = recipe_of(model_folders["qwen3"], {"name": "grpo"}, lora_rank)
    (group,) = make_groups([[1.0] * 5])
    demonstrations = [member.tokens for member in group.trajectories]
    config = SftConfig(steps=4, batch_size=batch_size, warmup_steps=1, learning_rate=1e-4)
    given = config, recipe.learning, recipe.seed
    one = SupervisedLearner(loaded(recipe, 1), demonstrations, *given)
    make = partial(supervised, demonstrations, config)
    two = DistributedOffline(team, recipe, loaded(recipe, 1), make)
    for _ in range(3):
        expected = one.step()
        assert two.step() == pytest.approx(expected, rel=2e-6, abs=1e-6)
    two.deliver()
    assert two.steps_done == one.steps_done
    assert_same_weights(one.model, two.model, one.state()["optimizer"], two.state()["optimizer"])
    two.save(tmp_path, 3, tokenizer, {}, two.state(), lambda: None)
    two.wait_until_saved()
    again = SupervisedLearner(two.model, demonstrations, *given)
    again.load_state(read(checkpoint.load(tmp_path / "step-000003").learner))
    assert again.step() == pytest.approx(one.step(), rel=2e-6, abs=1e-6)
    assert again.finished
