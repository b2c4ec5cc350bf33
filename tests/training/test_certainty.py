"""A run whose reward is the policy's own certainty, and the best of k by a part that is there."""

import json
from pathlib import Path

import pytest

from tests.small_runs import train
from turnwise.config import load_recipe
from turnwise.errors import ConfigError
from turnwise.storage.run_folder import RunFolder
from turnwise.storage.trajectory_rows import read_rows

ENVIRONMENT = "Levels"
TABLES = """
engine = { max_sequences = 8 }
rollout = { max_turns = 2, max_turn_tokens = 8, max_tokens = 400 }
train = { steps = 2, tasks_per_step = 2, group_size = 3, checkpoint_every = 1 }
evaluation = { tasks = 3, episodes_per_task = 2, temperature = 1.0 }
"""


@pytest.mark.long
def test_the_policys_own_certainty_is_a_reward(recipe: Path, tmp_path: Path) -> None:
    folder = RunFolder.new(tmp_path / "run")
    more = ("reward.dominance=false", "reward.parts.self_certainty=0.5", "reward.parts.entropy=-1")
    train(recipe, folder, *more, "train.steps=1")
    for name in ("step-000001", "evaluation-trained"):
        for row in read_rows(folder.path / f"trajectories/{name}.parquet"):
            found = json.loads(row["parts"])
            assert 0 <= found["entropy"] <= 1
            assert found["self_certainty"] > 0
    with pytest.raises(ConfigError, match=r"while it learns: set train\.max_staleness=0"):
        load_recipe(str(recipe), [*more, "train.max_staleness=1", "engine.deterministic=false"])


def test_an_unknown_best_is_refused(recipe: Path, tmp_path: Path) -> None:
    for parts, message in (
        ((), "no number of an episode is measured: name a part"),
        (("reward.parts.entropy=-0.1",), "did you mean 'entropy'"),
    ):
        with pytest.raises(ConfigError, match=message):
            train(recipe, RunFolder.new(tmp_path / "run"), *parts, "evaluation.best_of=entopy")
