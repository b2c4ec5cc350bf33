"""A reward model that learns beside a policy of two processes: the first one has it."""

from pathlib import Path

import pytest

from tests.small_runs import interrupted, resume, train, write_recipe
from turnwise.storage.run_folder import RunFolder

pytestmark = [pytest.mark.slow, pytest.mark.numbers, pytest.mark.wing("judges")]
TABLES = """
engine.max_sequences = 8
rollout = { max_turns = 2, max_turn_tokens = 8, max_tokens = 400 }
train = { steps = 2, tasks_per_step = 2, group_size = 3, checkpoint_every = 1 }
evaluation = { tasks = 3, episodes_per_task = 2, temperature = 1.0 }
"""
MODEL = (
    "reward_model.steps=3",
    "reward_model.batch_size=4",
    "reward.parts.reward_model=0.5",
    "reward.failure=-1",
    "evaluation.best_of=reward_model",
)


def test_it_learns_as_beside_one_process_and_goes_on_exactly(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path, "Levels", TABLES)
    data, one, two = (RunFolder.new(tmp_path / name) for name in ("data", "one", "two"))
    train(recipe, data, "train.steps=4", "evaluation.tasks=0", "evaluation.episodes_per_task=1")
    given = f'reward_model.data=["{data.path}"]', *MODEL, "reward_model.beside_policy=true"
    train(recipe, one, *given)
    train(recipe, two, *given, "cluster.learners=2")
    expected, found = (folder.lines("metrics.jsonl") for folder in (one, two))
    for ours, theirs in zip(expected, found, strict=True):
        del ours["policy/weights_changed"]  # looks at samples of each part
        assert {name: theirs[name] for name in ours} == pytest.approx(ours, rel=1e-5, abs=1e-5)
        assert theirs["reward_model/loss"] > 0
    folder = interrupted(two, tmp_path / "again", "step-000002")
    resume(folder)
    assert folder.lines("metrics.jsonl") == found
