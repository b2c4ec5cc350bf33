"""A rank that ends while demonstrations are imitated.

A file of its own: a process is rank 0 of one team at a time, and other files share theirs.
"""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cluster_tests.learners.test_learner import loaded, recipe_of
from cluster_tests.learners.test_saving import Held
from turnwise.config import ClusterConfig, SftConfig
from turnwise.errors import InfrastructureError
from turnwise.storage.checkpoint import Saveable
from turnwise.training.offline_learners import supervised_learner
from turnwise.types import Group
from turnwise_cluster.learners.learner import DistributedOffline
from turnwise_cluster.resources import ClusterResources

pytestmark = pytest.mark.numbers

MakeGroups = Callable[..., list[Group]]


@pytest.mark.long
def test_a_rank_that_ends_is_told_and_not_the_checkpoint_that_is_lost_with_it(
    model_folders: dict[str, Path], make_groups: MakeGroups, tokenizer: Saveable, tmp_path: Path
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
