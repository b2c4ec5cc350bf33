"""Promises 6 and 7 for pairs: a step does not depend on the number of processes that make it, and
one goes on from what two have written."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cluster_tests.learners.test_learner import assert_same_weights, loaded, recipe_of
from cluster_tests.learners.test_sequence import sliced
from turnwise.config import PreferencesConfig
from turnwise.storage import checkpoint
from turnwise.storage.checkpoint import Saveable
from turnwise.storage.tensors import read
from turnwise.types import Group
from turnwise_cluster.learners.learner import DistributedOffline
from turnwise_cluster.learners.team import Team

LEARNING: Any = pytest.importorskip("turnwise_judges.preferences.learner")
pytestmark = pytest.mark.numbers

MakeGroups = Callable[..., list[Group]]


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
    team: Team,
    model_folders: dict[str, Path],
    make_groups: MakeGroups,
    tokenizer: Saveable,
    tmp_path: Path,
    family: str,
    lora_rank: int,
    batch_size: int,
    slices: int,
) -> None:
    """Of a batch of one pair a rank has none; what the reference is stays what it was."""
    recipe = sliced(recipe_of(model_folders[family], {"name": "grpo"}, lora_rank), 2, slices)
    config = PreferencesConfig(steps=4, batch_size=batch_size, learning_rate=1e-4, beta=0.2)
    recipe = recipe.model_copy(update={"preferences": config})
    pairs = LEARNING.best_and_worst(
        make_groups([[1.0, 0.0], [0.0, 0.5, 1.0], [0.2, 0.1], [0.0, 1.0]])
    )
    given = config, recipe.learning, 1.0, recipe.seed
    one = LEARNING.PreferenceLearner(loaded(recipe, 1), pairs, *given)
    two = DistributedOffline(team, recipe, loaded(recipe, 1), partial(LEARNING.preferences, pairs))
    for step in range(3):
        found, expected = two.step(), one.step()
        if step == 0:  # the policy is the reference: margins are rounding, and have no sign
            found["preferences/accuracy"] = expected["preferences/accuracy"]
        assert found == pytest.approx(expected, rel=2e-6, abs=1e-6)
    two.deliver()
    assert_same_weights(one.model, two.model, one.state()["optimizer"], two.state()["optimizer"])
    two.save(tmp_path, 3, tokenizer, {}, two.state(), lambda: None)
    two.wait_until_saved()
    saved = checkpoint.load(tmp_path / "step-000003").learner
    again = LEARNING.PreferenceLearner(two.model, LEARNING.saved_pairs(saved), *given)
    again.load_state(read(saved))
    assert again.step() == pytest.approx(one.step(), rel=2e-6, abs=1e-6)
    assert again.finished
