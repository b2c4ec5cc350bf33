"""Promises 6 and 7 for demonstrations and pairs: a step does not depend on the number of processes
that make it, and one goes on from what two have written."""

import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cluster_tests.learners.comparing import Bench, assert_same_weights, loaded, recipe_of
from cluster_tests.learners.test_saving import Held
from turnwise.config import SftConfig
from turnwise.errors import InfrastructureError
from turnwise.learning.sft import SupervisedLearner, supervised
from turnwise.storage import checkpoint
from turnwise.storage.checkpoint import Saveable
from turnwise.storage.tensors import read
from turnwise.training.offline_learners import supervised_learner
from turnwise.types import Group
from turnwise_cluster.learners.learner import DistributedOffline
from turnwise_cluster.resources import ClusterResources
from turnwise_cluster.settings import ClusterConfig
from turnwise_judges.settings import PreferencesConfig

pytestmark = pytest.mark.numbers


def gone_on(bench: Bench, one: Any, two: DistributedOffline) -> dict[str, Any]:
    """Compare what has been learned; returns the state that is read from two processes' checkpoint,
    of the third step."""
    two.deliver()
    assert two.steps_done == one.steps_done
    assert_same_weights(one.model, two.model, one.state()["optimizer"], two.state()["optimizer"])
    return dict(checkpoint.load(bench.save(two, 3)).learner)


@pytest.mark.long
@pytest.mark.parametrize(("lora_rank", "batch_size"), [(0, 3), (2, 1)])
def test_two_ranks_imitate_as_one_does_and_one_goes_on(
    bench: Bench, lora_rank: int, batch_size: int
) -> None:
    """Of a batch of one demonstration a rank has none."""
    recipe = bench.recipe("qwen3", {"name": "grpo"}, lora_rank=lora_rank)
    (group,) = bench.groups([[1.0] * 5])
    demonstrations = [member.tokens for member in group.trajectories]
    config = SftConfig(steps=4, batch_size=batch_size, warmup_steps=1, learning_rate=1e-4)
    given = config, recipe.learning, recipe.seed
    one = SupervisedLearner(loaded(recipe, 1), demonstrations, *given)
    make = partial(supervised, demonstrations, config)
    two = DistributedOffline(bench.team, recipe, loaded(recipe, 1), make)
    for _ in range(3):
        expected = one.step()
        assert two.step() == pytest.approx(expected, rel=2e-6, abs=1e-6)
    saved = gone_on(bench, one, two)
    again = SupervisedLearner(two.model, demonstrations, *given)
    again.load_state(read(saved))
    assert again.step() == pytest.approx(one.step(), rel=2e-6, abs=1e-6)
    assert again.finished


@pytest.mark.wing("judges")
@pytest.mark.long
@pytest.mark.parametrize(
    ("family", "lora_rank", "batch_size", "slices"),
    [
        ("qwen3", 0, 3, 1),
        pytest.param("gemma2", 2, 1, 1, marks=pytest.mark.slow),
        pytest.param("qwen3", 0, 2, 2, marks=pytest.mark.slow),
    ],
)
def test_two_ranks_learn_from_pairs_as_one_does_and_one_goes_on(
    bench: Bench, family: str, lora_rank: int, batch_size: int, slices: int
) -> None:
    """Of a batch of one pair a rank has none; what the reference is stays what it was."""
    from turnwise_judges.preferences import learner as learning

    recipe = bench.recipe(family, {"name": "grpo"}, lora_rank=lora_rank, slices=slices)
    config = PreferencesConfig(steps=4, batch_size=batch_size, learning_rate=1e-4, beta=0.2)
    recipe = recipe.model_copy(update={"preferences": config})
    pairs = learning.best_and_worst(
        bench.groups([[1.0, 0.0], [0.0, 0.5, 1.0], [0.2, 0.1], [0.0, 1.0]])
    )
    given = config, recipe.learning, 1.0, recipe.seed
    one = learning.PreferenceLearner(loaded(recipe, 1), pairs, *given)
    make = partial(learning.preferences, pairs)
    two = DistributedOffline(bench.team, recipe, loaded(recipe, 1), make)
    for step in range(3):
        found, expected = two.step(), one.step()
        if step == 0:  # the policy is the reference: margins are rounding, and have no sign
            found["preferences/accuracy"] = expected["preferences/accuracy"]
        assert found == pytest.approx(expected, rel=2e-6, abs=1e-6)
    saved = gone_on(bench, one, two)
    again = learning.PreferenceLearner(two.model, learning.saved_pairs(saved), *given)
    again.load_state(read(saved))
    assert again.step() == pytest.approx(one.step(), rel=2e-6, abs=1e-6)
    assert again.finished


@pytest.mark.long
def test_a_rank_that_ends_is_told_and_not_the_checkpoint_that_is_lost_with_it(
    model_folders: dict[str, Path],
    make_groups: Callable[..., list[Group]],
    tokenizer: Saveable,
    tmp_path: Path,
) -> None:
    recipe = recipe_of(model_folders["qwen3"], {"name": "grpo"})
    recipe = recipe.model_copy(update={"cluster": ClusterConfig(learners=2, seconds=60)})
    context: Any = SimpleNamespace(
        recipe=recipe,
        components=SimpleNamespace(model=loaded(recipe, 1)),
        resources=ClusterResources(folder=tmp_path),
    )
    (group,) = make_groups([[1.0] * 5])
    demonstrations, held = [member.tokens for member in group.trajectories], Held(tokenizer)

    def learn() -> None:
        config = SftConfig(steps=2)
        with supervised_learner(context, demonstrations, config, None) as learner:
            assert isinstance(learner, DistributedOffline)
            learner.save(tmp_path / "saved", 0, held, {}, learner.state(), lambda: None)
            os.kill(learner.team._arrivals[1].process, signal.SIGKILL)
            held.go_on.set()
            learner.step()

    with pytest.raises(InfrastructureError, match=r"learner rank 1 .* ended in step \(code -9\)"):
        learn()
