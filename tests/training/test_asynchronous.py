"""The loop with sampling ahead of learning: what max_staleness = 0 is, that a bound is a bound,
what is left of a run that was killed or cancelled, and what is refused.

Runs are real ones, of a small random model; resetting its environment takes a random time.
"""

import asyncio
import signal
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from tests.small_runs import prepared, start, train
from turnwise.algorithms.registry import make_algorithm
from turnwise.config import load_recipe
from turnwise.learning.credits import estimate
from turnwise.learning.policy import PolicyLearner
from turnwise.learning.signals.base import Signals
from turnwise.parts.components import build_components
from turnwise.rollout.order import tasks_of_step
from turnwise.storage.run_folder import RunFolder
from turnwise.storage.trajectory_rows import read_rows
from turnwise.tokens import NO_VERSION
from turnwise.training.run import run as run_stages

ENVIRONMENT = "LateLetters"
TABLES = """
engine = { max_sequences = 4 }
rollout = { max_turns = 3, max_turn_tokens = 12, max_tokens = 200 }
learning = { learning_rate = 1e-3 }
train = { steps = 5, tasks_per_step = 2, group_size = 4, checkpoint_every = 2 }
evaluation = { tasks = 0 }
"""
AHEAD = ("engine.deterministic=false", "train.max_staleness=2")


async def one_after_the_other(recipe: Path) -> dict[str, torch.Tensor]:
    """The weights of a loop that knows nothing of pipelines: sample, learn, sample, learn."""
    loaded = load_recipe(str(recipe))
    parts, algorithm = build_components(loaded), make_algorithm("grpo", {})
    learner = PolicyLearner(parts.model, None, loaded.learning, algorithm, 1.0)
    runner, tasks = parts.runner(loaded.rollout), parts.environment.tasks("train")
    for step in range(loaded.train.steps):
        await parts.engine.load_weights({}, step)
        chosen = tasks_of_step(tasks, step, loaded.train.tasks_per_step, loaded.seed)
        groups = await runner.collect(chosen, loaded.train.group_size, loaded.seed, f"train/{step}")
        learner.update(groups, estimate(groups, Signals(), algorithm))
    await parts.engine.stop()
    return parts.model.state_dict()


@pytest.mark.long
def test_no_staleness_is_the_synchronous_run_bit_for_bit(recipe: Path, tmp_path: Path) -> None:
    context = train(recipe, RunFolder.new(tmp_path / "run"), "train.max_staleness=0")
    expected = asyncio.run(one_after_the_other(recipe))
    found = context.components.model.state_dict()
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in found)
    start = build_components(load_recipe(str(recipe))).model.state_dict()
    assert not all(torch.equal(found[name], start[name]) for name in found)
    lines = context.folder.lines("metrics.jsonl")
    assert not any(name.startswith("staleness/") for line in lines for name in line)


def check_played(folder: RunFolder, steps: int, tasks: Sequence[str]) -> None:
    """Each step's tasks are those that are due, each with all of its episodes, and no others."""
    assert [line["step"] for line in folder.lines("metrics.jsonl")] == list(range(1, steps + 1))
    files = sorted((folder.path / "trajectories").glob("step-*.parquet"))
    assert len(files) == steps
    for step, file in enumerate(files):
        groups = Counter(row["group"] for row in read_rows(file))
        assert groups == {f"train/{step}/{task}": 4 for task in tasks}


@pytest.mark.long
def test_sampling_ahead_keeps_its_bound_and_corrects_for_staleness(
    recipe: Path, tmp_path: Path
) -> None:
    context = train(
        recipe, RunFolder.new(tmp_path / "run"), *AHEAD, "algorithm.correction=truncated"
    )
    folder = context.folder
    check_played(folder, 5, [task.id for task in context.tasks])
    lines = folder.lines("metrics.jsonl")
    assert all(0 <= line["staleness/mean"] <= line["staleness/max"] <= 2 for line in lines)
    assert max(line["staleness/max"] for line in lines) > 0
    assert [line["policy/updates"] for line in lines] == [1.0] * 5
    stale = [line for line in lines if line["staleness/max"]]
    assert all(line["policy/logprob_gap"] > 1e-5 for line in stale)
    assert all(line["correction/weight"] != 1.0 for line in stale)
    for step, file in enumerate(sorted((folder.path / "trajectories").glob("step-*.parquet"))):
        versions = {version for row in read_rows(file) for version in row["version"]}
        assert versions - {NO_VERSION} <= set(range(max(0, step - 2), step + 1))
    timing = folder.lines("timing.jsonl")
    assert sum(line["seconds/waiting"] for line in timing) < sum(
        line["seconds/rollout"] for line in timing
    )


@pytest.mark.long
def test_the_engines_weights_are_a_copy_and_become_the_learners(
    recipe: Path, tmp_path: Path
) -> None:
    context = train(recipe, RunFolder.new(tmp_path / "run"), *AHEAD, "train.steps=2")
    learned, sampled = context.components.model, context.components.engine.engine._model
    assert learned is not sampled
    for name, weight in learned.state_dict().items():
        assert torch.equal(weight, sampled.state_dict()[name])
        assert weight.data_ptr() != sampled.state_dict()[name].data_ptr()


@pytest.mark.long
def test_adapters_are_sampled_with_and_frozen_weights_are_shared(
    recipe: Path, tmp_path: Path
) -> None:
    pytest.importorskip("peft")
    context = train(
        recipe, RunFolder.new(tmp_path / "run"), *AHEAD, "model.lora_rank=2", "train.steps=2"
    )
    sampled = dict(context.components.engine.engine._model.named_parameters())
    adapters = 0
    for name, weight in context.components.model.get_base_model().named_parameters():
        assert torch.equal(weight, sampled[name])
        assert (weight is sampled[name]) is not weight.requires_grad
        adapters += "lora_B" in name and bool(weight.any())
    assert adapters


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_after_a_stop_no_task_is_lost_and_none_counts_twice(
    recipe: Path, tmp_path: Path, how: signal.Signals
) -> None:
    """Steps after the third are being sampled when it is stopped; killed, it has not saved the
    third."""
    run, steps = tmp_path / "stopped", 8
    process = start("train", recipe, *AHEAD, f"train.steps={steps}", "--run", run)
    while process.poll() is None and not (run / "trajectories/step-000003.parquet").exists():
        time.sleep(0.001)
    process.send_signal(how)
    _, errors = process.communicate()
    folder = RunFolder.open(run)
    done = len(folder.lines("metrics.jsonl"))
    context = prepared(folder.recipe(), folder)
    assert context.saved is not None
    if how == signal.SIGINT:
        assert process.returncode == 130, errors
        assert f"turnwise train --resume {run}" in errors
        assert context.saved.step == done
    else:
        assert process.returncode == -signal.SIGKILL
        assert context.saved.step <= done
    assert 2 <= context.saved.step < steps
    asyncio.run(run_stages(context))
    check_played(folder, steps, [task.id for task in context.tasks])
    assert all(line["staleness/max"] <= 2 for line in folder.lines("metrics.jsonl"))


@pytest.mark.long
@pytest.mark.parametrize("seconds", [0.05, 0.3])
async def test_a_cancelled_run_saves_what_it_learned_and_leaves_no_task(
    recipe: Path, tmp_path: Path, seconds: float
) -> None:
    folder = RunFolder.new(tmp_path / "run")
    context = prepared(recipe, folder, *AHEAD, "train.steps=500")
    running = asyncio.create_task(run_stages(context))
    while not folder.lines("metrics.jsonl"):
        await asyncio.sleep(0.001)
    await asyncio.sleep(seconds)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert not context.components.engine.engine._sessions
    saved = max(int(path.name[5:]) for path in folder.checkpoints.glob("step-*"))
    assert saved == len(folder.lines("metrics.jsonl")) > 0


@pytest.mark.long
def test_oversampled_episodes_are_played_and_left_out(recipe: Path, tmp_path: Path) -> None:
    overrides = (
        "engine.deterministic=false",
        "train.oversample=2",
        "train.steps=2",
        "engine.max_concurrent_episodes=9",
    )
    context = train(recipe, RunFolder.new(tmp_path / "run"), *overrides)
    lines = context.folder.lines("metrics.jsonl")
    assert [line["rollout/episodes"] for line in lines] == [8.0, 8.0]
    assert [line["oversampled/episodes"] for line in lines] == [4.0, 4.0]
    assert [line["policy/updates"] for line in lines] == [1.0, 1.0]
    check_played(context.folder, 2, [task.id for task in context.tasks])
