"""Evaluations during RL: on tasks of their own, exact when interrupted, and what goes by them."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests import small_runs
from turnwise.errors import ConfigError, DataError
from turnwise.storage.run_folder import RunFolder
from turnwise.training.evaluations import Evaluation
from turnwise.training.validation import Validation, best_step

TABLES = """
rollout = { max_turns = 2, max_turn_tokens = 8, max_tokens = 200 }
learning = { learning_rate = 0.01 }
train.steps = 6
train.tasks_per_step = 2
train.group_size = 2
train.checkpoint_every = 1
train.keep_checkpoints = 1
evaluation = { tasks = 1, during_rl = { every = 2, tasks = 1 } }
"""


def found(*successes: float) -> str:
    lines = [{"step": 2 * n, "validation/success": s} for n, s in enumerate(successes, 1)]
    return "".join(json.dumps(line) + "\n" for line in lines)


@pytest.mark.slow
def test_every_few_steps_on_tasks_that_the_report_does_not_play(
    recipe: Path, tmp_path: Path
) -> None:
    context = small_runs.train(recipe, RunFolder.new(tmp_path / "run"))
    lines = context.folder.lines("validation.jsonl")
    assert [line["step"] for line in lines] == [2, 4, 6]
    assert [line["validation/n"] for line in lines] == [1, 1, 1]
    played, other = context.heldout, context.validation
    assert len(played) == len(other) == 1
    assert played[0].id != other[0].id
    without = small_runs.train(
        recipe, RunFolder.new(tmp_path / "other"), "evaluation.during_rl=false"
    )
    weights = [
        load_file(one.folder.checkpoints / "step-000006/model.safetensors")
        for one in (context, without)
    ]
    assert all(np.array_equal(weights[0][name], weights[1][name]) for name in weights[0])


@pytest.mark.slow
def test_one_that_was_interrupted_is_done_when_the_run_goes_on(
    recipe: Path, tmp_path: Path
) -> None:
    """The checkpoint of its step is there, and its line is not."""
    whole = small_runs.train(recipe, RunFolder.new(tmp_path / "run"), "train.steps=4").folder
    shutil.copytree(whole.path, tmp_path / "copy")
    copy = RunFolder.open(tmp_path / "copy")
    copy.rewind("validation.jsonl", 2)
    small_runs.resume(copy)
    assert copy.lines("validation.jsonl") == whole.lines("validation.jsonl")


@pytest.mark.long
def test_the_best_step_is_kept_and_restored(recipe: Path, tmp_path: Path) -> None:
    """What was found before the run goes on makes step 2 the best; the newest is step 4."""
    folder = RunFolder.new(tmp_path / "run")
    options = ("evaluation.during_rl.keep_best=true", "train.keep_checkpoints=3", "train.steps=4")
    small_runs.train(recipe, folder, *options)
    (folder.path / "validation.jsonl").write_text(found(0.75, 0.5))
    shutil.copytree(folder.path, tmp_path / "damaged")
    half = folder.path / "timeline" / "step-000009.parquet.partial"
    half.write_text("")  # this, and more, as kills leave it
    (folder.checkpoints / ".step-000004.17").mkdir()
    shutil.copytree(folder.checkpoints / "step-000003", folder.checkpoints / "step-000001")
    display = small_runs.Listening()
    context = small_runs.resume(RunFolder.open(folder.path), display)
    assert not half.exists()
    left = sorted(path.name for path in folder.checkpoints.iterdir())
    assert left == ["step-000002", "step-000003", "step-000004"]
    assert display.said[-1:] == ["the weights of step 2 are kept: the best on validation tasks"]
    saved = load_file(folder.checkpoints / "step-000002/model.safetensors")
    after = context.components.model.state_dict()
    assert all(np.array_equal(after[name].numpy(), weight) for name, weight in saved.items())
    evaluation = folder.evaluation("trained")
    assert evaluation["step"] == 2
    damaged = RunFolder.open(tmp_path / "damaged")
    file = damaged.checkpoints / "step-000002/model.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"\x01")
    with pytest.raises(DataError, match=r"step-000002: model\.safetensors is damaged"):
        small_runs.resume(damaged)
    shutil.rmtree(file.parent)
    display = small_runs.Listening()
    small_runs.resume(damaged, display)
    assert display.said[-1:] == ["warning: the best step, 2, is not saved: the last is kept"]
    assert damaged.evaluation("trained")["step"] == 4


@pytest.mark.slow
def test_the_best_steps_checkpoint_outlasts_newer_ones(recipe: Path, tmp_path: Path) -> None:
    """Nothing succeeds in this run: the first evaluation is the best of equals."""
    folder = RunFolder.new(tmp_path / "run")
    small_runs.train(recipe, folder, "evaluation.during_rl.keep_best=true")
    names = sorted(path.name for path in folder.checkpoints.glob("step-*"))
    assert names == ["step-000002", "step-000006"]


@pytest.mark.long
def test_a_run_stops_that_no_longer_gets_better(recipe: Path, tmp_path: Path) -> None:
    """And has saved what it ends with."""
    folder = RunFolder.new(tmp_path / "run")
    options = ("evaluation.during_rl.patience=1", "train.steps=20", "train.checkpoint_every=3")
    small_runs.train(recipe, folder, *options)
    assert [line["step"] for line in folder.lines("metrics.jsonl")] == [1, 2, 3, 4]
    assert (folder.checkpoints / "step-000004").is_dir()
    before = (folder.path / "metrics.jsonl").read_bytes()
    small_runs.resume(RunFolder.open(folder.path))
    assert (folder.path / "metrics.jsonl").read_bytes() == before


@pytest.mark.long
@pytest.mark.parametrize(
    ("successes", "patience", "stops"),
    [
        ((0.5, 0.5), 1, True),
        ((0.5, 0.6), 1, False),
        ((0.5, 0.4), 2, False),
        ((0.5, 0.4, 0.5), 2, True),
        ((0.5, 0.4, 0.3), 0, False),
        ((), 1, False),
    ],
)
def test_patience_is_counted_from_the_best(
    recipe: Path, tmp_path: Path, successes: tuple[float, ...], patience: int, stops: bool
) -> None:
    folder = RunFolder.new(tmp_path / "run")
    context = small_runs.prepared(recipe, folder, f"evaluation.during_rl.patience={patience}")
    (folder.path / "validation.jsonl").write_text(found(*successes))
    assert Validation(context, 100).stops is stops


async def test_evaluations_ask_for_no_experts(recipe: Path, tmp_path: Path) -> None:
    """The model of this run has none: its engine refuses to be asked for them."""
    context = small_runs.prepared(recipe, RunFolder.new(tmp_path / "run"))
    replay = context.recipe.rollout.model_copy(update={"routing_replay": True})
    asking = replace(context, recipe=context.recipe.model_copy(update={"rollout": replay}))
    try:
        await Evaluation("trained", context.components.environment).run(asking, 2)
        assert await Validation(asking, 0).check(2)
    finally:
        await context.components.stop()


def test_the_earliest_of_equals_is_the_best() -> None:
    lines = [{"step": n, "validation/success": s} for n, s in ((2, 0.1), (4, 0.3), (6, 0.3))]
    assert best_step(lines) == 4
    assert best_step([]) is None


def test_tasks_that_are_not_there_are_refused(recipe: Path, tmp_path: Path) -> None:
    folder = RunFolder.new(tmp_path / "run")
    with pytest.raises(ConfigError, match="there are 2 held-out tasks"):
        small_runs.prepared(recipe, folder, "evaluation.during_rl.tasks=2")
