"""The command `launch`: what is printed, what is submitted, and mistakes."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from turnwise.commands.cli import app, main


def test_a_dry_run_prints_the_job_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(
        app, ["launch", "demo", "train.steps=3", "--on", "slurm", "--dry-run", "--hours", "2"]
    )
    assert result.exit_code == 0
    assert result.output.startswith("#!/bin/bash\n#SBATCH --job-name=demo\n")
    assert "turnwise train demo --run runs/demo train.steps=3;" in result.output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("key", ["cluster.workers", "cluster.samplers", "cluster.learners"])
def test_several_nodes_are_of_use_with_any_processes_beside_the_runs(key: str) -> None:
    words = ["launch", "demo", f"{key}=2", "--on", "slurm", "--nodes", "2", "--dry-run"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0
    assert f"{key}=2 cluster.address=auto" in result.output


@pytest.mark.parametrize(
    ("words", "used"),
    [
        ("", 1),
        ("cluster.learners=4", 4),
        ("cluster.samplers=2", 3),
        ("engine=vllm engine.servers.replicas=2 engine.servers.gpus=2", 5),
        ("engine=vllm cluster.samplers=3 cluster.address=auto engine.servers.gpus=2", 7),
        ("model.device=cpu", 0),
        ("cluster.learners=8", 8),
    ],
)
def test_gpus_that_nothing_uses_are_said(words: str, used: int) -> None:
    given = ["launch", "demo", *words.split(), "--on", "slurm", "--gpus", "8", "--dry-run"]
    result = CliRunner().invoke(app, given)
    assert result.exit_code == 0
    told = f"warning: 8 GPUs are booked, and the recipe uses {used}:"
    assert (told in result.stderr) == (used < 8)
    assert told not in result.stdout


def test_a_job_is_submitted_with_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    program = tmp_path / "sbatch"
    program.write_text('#!/bin/sh\ncat "$1" > submitted; exit 4\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    result = CliRunner().invoke(app, ["launch", "demo", "--on", "slurm"])
    assert result.exit_code == 4
    assert (tmp_path / "submitted").read_text() == (tmp_path / "demo.sbatch").read_text()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("demo --on slurm", "sbatch is not installed here: --dry-run prints the job"),
        ("demo --on slurm --nodes 2", "add cluster.workers=N"),
        ("demo --on kubernetes --dry-run", "give --image"),
        ("demo --on skypilot --dry-run --volume b --gpus 1", "--gpu H100"),
        ("nowhere --on slurm --dry-run", "nowhere"),
        ("demo train.stesp=1 --on slurm --dry-run", "train.steps"),
    ],
)
def test_mistakes_are_said_in_one_line(
    words: str, told: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SystemExit) as ended:
        main(["launch", *words.split()])
    assert ended.value.code == 2
    shown = capsys.readouterr().err
    assert told in shown
    assert shown.count("\n") == 1
