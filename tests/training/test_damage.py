"""Runs whose folder was damaged, is full, or is written by somebody else: one line, nothing lost.

One small run is made; each test damages a copy of it without what came after its second step.
"""

import asyncio
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import small_runs
from tests.commands.shell import Shell
from tests.small_runs import Listening, interrupted, prepared, resume, train
from turnwise.errors import DataError
from turnwise.rollout.order import tasks_of_step
from turnwise.seeds import derive
from turnwise.storage.run_folder import RunFolder
from turnwise.storage.run_lock import locked
from turnwise.threads import configure_threads
from turnwise.training.reinforcement import ReinforcementLoop

ENVIRONMENT = "Levels"
TABLES = """
rollout = { max_turns = 1, max_turn_tokens = 16, max_tokens = 200 }
sft = { steps = 1, demonstrations = { count = 2, behaviours = { faithful = 1 } }, batch_size = 2 }
algorithm = { kl_coefficient = 1e-3 }
learning = { learning_rate = 1e-3 }
train = { steps = 3, tasks_per_step = 2, group_size = 2, checkpoint_every = 1 }
evaluation = { tasks = 2 }
"""


def go_on(run: Path) -> list[str]:
    """Go on with a run to its end; what it said."""
    folder, display = RunFolder.open(run), Listening()
    configure_threads(1)
    with folder.locked():
        resume(folder, display)
    return display.said


@pytest.fixture(scope="module")
def whole(recipe: Path) -> Path:
    folder = RunFolder.new(recipe.parent / "whole")
    configure_threads(1)
    with folder.locked():
        train(recipe, folder)
    return folder.path


@pytest.fixture
def run(whole: Path, tmp_path: Path) -> Path:
    """A copy, killed after the checkpoint of its second step: steps 1 and 2 are there."""
    return interrupted(RunFolder(whole), tmp_path / "run", "step-000003").path


def assert_same(whole: Path, other: Path) -> None:
    small_runs.assert_same(RunFolder(whole), RunFolder(other), "step-000003")


def flip(file: Path) -> None:
    """One bit of the byte in the middle."""
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


@pytest.mark.long
def test_a_run_goes_on_from_before_a_damaged_checkpoint(whole: Path, run: Path) -> None:
    """From the cold start, since the only checkpoint of RL is damaged; and it ends the same."""
    flip(run / "checkpoints/step-000002/model.safetensors")
    said = go_on(run)
    damaged, before = (line for line in said if "checkpoint" in line)
    assert "step-000002: model.safetensors is damaged; it is kept as step-000002.damaged" in damaged
    assert "goes on from" in before
    assert "cold_start/step-000001" in before
    assert_same(whole, run)


def test_a_damaged_reference_of_the_kl_term_is_one_line(run: Path) -> None:
    flip(run / "checkpoints/cold_start/step-000001/model.safetensors")
    with pytest.raises(DataError, match=r"step-000001: model\.safetensors is damaged"):
        go_on(run)


def test_a_checkpoint_of_an_earlier_version_is_one_line(run: Path) -> None:
    """It has no tensors of the optimizer by name."""
    folder = run / "checkpoints/step-000002"
    shutil.rmtree(folder / "learner")
    sums = (folder / "SHA256SUMS").read_text().splitlines(keepends=True)
    (folder / "SHA256SUMS").write_text("".join(line for line in sums if "learner/" not in line))
    with pytest.raises(DataError, match=r"step-000002 is of an earlier version of turnwise, and"):
        go_on(run)


def torn(run: Path) -> None:
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 3, "rew')


def no_tokenizer(run: Path) -> None:
    (run / "tokenizer/tokenizer.json").write_text("{")


def left_overs(run: Path) -> None:
    (run / "checkpoints/.step-000003.77").mkdir()
    (run / "lock").write_text('{"pid": 77, "started": "5", "host": "", "since": ""')


@pytest.mark.long
@pytest.mark.parametrize(
    "damage",
    [torn, *(pytest.param(one, marks=pytest.mark.slow) for one in (no_tokenizer, left_overs))],
)
def test_what_a_crash_leaves_behind_does_no_harm(
    whole: Path, run: Path, damage: Callable[[Path], None]
) -> None:
    damage(run)
    go_on(run)
    assert_same(whole, run)
    assert not list((run / "checkpoints").glob(".step-*"))
    assert not (run / "lock").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "file", ["trajectories/step-000003.parquet", "evaluations/trained.json", "report.json"]
)
def test_a_disk_that_is_full_during_the_run_is_one_line_and_code_3(
    whole: Path, run: Path, shell: Shell, file: str
) -> None:
    """/dev/full stands in the place of one file, once what a kill has left behind is gone; when
    there is room again, the run goes on."""
    left = run / "left.partial"
    left.touch()

    def fill() -> None:
        while left.exists():
            time.sleep(0.001)
        (run / f"{file}.partial").symlink_to("/dev/full")

    threading.Thread(target=fill, daemon=True).start()
    said = shell("train", "--resume", run, code=3).err
    last = said.strip().splitlines()[-1]
    assert f"{file} cannot be written: " in last
    assert "No space left on device; the last checkpoint is whole" in last
    assert "Traceback" not in said
    go_on(run)
    assert_same(whole, run)


def test_a_run_that_is_being_written_is_read_and_not_written(
    run: Path, recipe: Path, shell: Shell
) -> None:
    """Neither gone on with nor replaced; shown and evaluated all the same."""
    before = sorted(path for path in run.rglob("*"))
    with locked(run):
        for arguments in (["--resume", run], [recipe, "--run", run, "--overwrite"]):
            said = shell("train", *arguments, code=2).err
            assert "is being written by process" in said
            assert len(said.strip().splitlines()) == 1
        shell("show", run)
        shell("evaluate", run, "evaluation.tasks=1")
    assert sorted(path for path in run.rglob("*")) == before


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "expected"), [("SIGTERM", 143), pytest.param("SIGUSR1", 75, marks=pytest.mark.slow)]
)
def test_a_signal_saves_and_says_how_to_go_on(
    whole: Path, run: Path, shell: Shell, name: str, expected: int
) -> None:
    """Sent while the third of four steps is written, which has no checkpoint yet."""

    def send() -> None:
        deadline = time.monotonic() + 60
        while not list((run / "trajectories").glob("step-000003.parquet*")):
            if time.monotonic() > deadline:
                return
            time.sleep(0.001)
        os.kill(os.getpid(), getattr(signal, name))

    (run / "trajectories/step-000003.parquet").unlink()
    config = run / "config.toml"
    text = config.read_text().replace("checkpoint_every = 1\n", "checkpoint_every = 9\n")
    config.write_text(text.replace("steps = 3\n", "steps = 4\n"))
    sender = threading.Thread(target=send)
    sender.start()
    said = shell("train", "--resume", run, code=expected).err
    sender.join()
    assert f"stopped by {name}; go on with: turnwise train --resume {run}" in said
    assert not (run / "lock").exists()
    lines = RunFolder.open(run).lines("metrics.jsonl")
    assert lines[:3] == RunFolder.open(whole).lines("metrics.jsonl")
    assert (run / f"checkpoints/step-00000{len(lines)}/SHA256SUMS").is_file()


@pytest.mark.long
def test_rounds_play_other_tasks(recipe: Path, tmp_path: Path) -> None:
    """Each round of a step has an order of its own, and a name of its own for its draws."""
    rounds = ("train.dynamic_sampling_rounds=2", "algorithm.group_filter=top_spread")
    context = prepared(recipe, RunFolder.new(tmp_path / "run"), *rounds)
    loop = ReinforcementLoop(context)
    for step in (0, 1):
        groups = asyncio.run(loop.sample(step)).groups
        orders = [0, derive(0, "round", 1), derive(0, "round", 2)]
        expected = [
            task.id for order in orders for task in tasks_of_step(context.tasks, step, 2, order)
        ]
        assert [group.trajectories[0].task.id for group in groups] == expected[: len(groups)]
        assert len(groups) > 2
        labels = {group.id.rpartition("/")[0] for group in groups}
        assert labels >= {f"train/{step}", f"train/{step}/round/1"}
        seeds = [member.seed for group in groups for member in group.trajectories]
        assert len(set(seeds)) == len(seeds)
