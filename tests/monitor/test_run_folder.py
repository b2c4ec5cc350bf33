"""What a run keeps, and that reading it back gives what was written."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from turnwise.config import check_recipe
from turnwise.errors import DataError, InfrastructureError
from turnwise.monitor.metrics import rollout_metrics
from turnwise.monitor.run_folder import RunFolder, read_rows
from turnwise.types import Action, Group, Outcome, Segment, Source, Task, Trajectory, Turn, Verdict

RECIPE = check_recipe({"name": "x", "environment": {"name": "search"}}, "test")


def member(reward: float | None) -> Trajectory:
    task = Task("t", "Who?", secret={"answers": ["classified"]})
    trajectory = Trajectory(task, "g", 0, 7)
    trajectory.tokens.extend_segments([Segment([1, 2], Source.USER)], 0)
    trajectory.tokens.extend_sampled([3], [-0.5], version=4, turn=0)
    trajectory.turns = [Turn(Action("<answer>x</answer>", answer="x"))]
    trajectory.outcome = Outcome.GRADER_ERROR if reward is None else Outcome.FAILURE
    trajectory.verdict = None if reward is None else Verdict(reward, False)
    return trajectory


def test_trajectories_come_back_token_for_token(tmp_path: Path) -> None:
    folder = RunFolder.new(tmp_path / "run")
    folder.begin(RECIPE)
    penalised = member(0.0)
    penalised.penalty = 0.25
    folder.write_trajectories("step-000001", [Group("g", [penalised, member(None)])])
    (file,) = folder.trajectory_files()
    graded, ungraded = read_rows(file)
    assert graded["ids"] == [1, 2, 3]
    assert graded["source"] == [Source.USER, Source.USER, Source.MODEL]
    assert graded["version"] == [-1, -1, 4]
    assert np.isnan(graded["logprob"][:2]).all()
    assert (graded["reward"], ungraded["reward"]) == (0.0, None)
    assert graded["penalty"] == 0.25
    assert b"classified" not in file.read_bytes()
    assert "classified" not in str(graded)


def test_rewinding_forgets_what_will_be_done_again(tmp_path: Path) -> None:
    folder = RunFolder.new(tmp_path / "run")
    folder.begin(RECIPE)
    for step in (1, 2, 3):
        folder.append("metrics.jsonl", {"step": step})
        folder.write_trajectories(f"step-{step:06d}", [])
    with (folder.path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 4, "cut sh')
    folder.rewind("metrics.jsonl", 2)
    folder.forget_trajectories(2)
    assert [line["step"] for line in folder.lines("metrics.jsonl")] == [1, 2]
    assert [file.stem for file in folder.trajectory_files()] == ["step-000001", "step-000002"]
    folder.append("metrics.jsonl", {"step": 3})
    assert [line["step"] for line in folder.lines("metrics.jsonl")] == [1, 2, 3]


def test_folders_that_are_taken_missing_or_damaged(tmp_path: Path) -> None:
    folder = RunFolder.new(tmp_path / "run")
    folder.begin(RECIPE)
    with pytest.raises(DataError, match="--resume"):
        RunFolder.new(tmp_path / "run")
    with pytest.raises(DataError, match=r"no config\.toml"):
        RunFolder.open(tmp_path)
    damaged = folder.path / "trajectories" / "step-000001.parquet"
    damaged.write_bytes(b"PAR1 not a table")
    with pytest.raises(DataError, match="cannot be read"):
        read_rows(damaged)
    folder.write_trajectories("step-000002", [Group("g", [member(1.0)])])
    older = folder.path / "trajectories" / "step-000002.parquet"
    pq.write_table(pq.read_table(older).drop_columns(["contexts"]), older)
    with pytest.raises(DataError, match=r"earlier version of turnwise: it has no 'contexts'"):
        read_rows(older)
    assert folder.recipe() == RECIPE


def test_metrics_leave_the_ungraded_out_of_rewards_and_count_them() -> None:
    metrics = rollout_metrics([Group("g", [member(1.0), member(0.0), member(None)])])
    assert metrics["reward/mean"] == 0.5
    assert metrics["reward/group_std"] == 0.5
    assert metrics["rollout/ungraded"] == 1
    assert metrics["outcome/grader_error"] == 1
    assert metrics["rollout/tokens_sampled"] == 3
    assert rollout_metrics([Group("g", [member(0.0), member(0.0)])])["groups/all_equal"] == 1.0


def test_overwriting_waits_until_the_run_begins(tmp_path: Path) -> None:
    folder = RunFolder.new(tmp_path / "run")
    folder.begin(RECIPE)
    folder.append("metrics.jsonl", {"step": 1})
    other = RunFolder.new(tmp_path / "run", overwrite=True)
    assert len(folder.lines("metrics.jsonl")) == 1
    other.begin(RECIPE)
    assert folder.lines("metrics.jsonl") == []
    RunFolder.open(tmp_path / "run").begin(RECIPE)


def test_a_folder_with_other_things_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    for overwrite in (False, True):
        with pytest.raises(DataError, match="holds no run"):
            RunFolder.new(tmp_path, overwrite)


def test_a_disk_that_fails_is_named(tmp_path: Path) -> None:
    folder = RunFolder.new(tmp_path / "run")
    folder.begin(RECIPE)
    (tmp_path / "run" / "trajectories").rmdir()
    with pytest.raises(InfrastructureError, match=r"step-000001\.parquet cannot be written"):
        folder.write_trajectories("step-000001", [])
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot be written"):
        RunFolder(tmp_path / "file" / "run", fresh=True).begin(RECIPE)
