"""Job files: their text, and that a script of Slurm saves and queues a run again."""

import os
import signal
import stat
import subprocess
import time
from pathlib import Path

import pytest
import yaml

from turnwise.cluster.jobs import Job, kubernetes, skypilot, slurm
from turnwise.errors import ConfigError

GOLDEN = Path(__file__).parent / "jobs"
ONE = Job("demo", "demo", "runs/demo", ("train.steps=10",), hours=1.5)
MANY = Job(
    "search",
    "recipes/search.toml",
    "/runs/search",
    ("cluster.workers=64",),
    nodes=4,
    cpus=32,
    gpus=8,
    gpu="H100",
    hours=12,
    image="registry.example/turnwise:1",
    volume="runs",
)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("one.sbatch", slurm(ONE)),
        ("many.sbatch", slurm(MANY)),
        ("many.rayjob.yaml", kubernetes(MANY)),
        ("many.sky.yaml", skypilot(MANY)),
    ],
)
def test_the_text_is_the_golden_file(file: str, text: str) -> None:
    assert text == (GOLDEN / file).read_text()


def test_what_a_scheduler_needs_is_asked_for() -> None:
    with pytest.raises(ConfigError, match="--image"):
        kubernetes(ONE)
    with pytest.raises(ConfigError, match="--volume"):
        skypilot(ONE)
    nameless = Job("demo", "demo", "runs/demo", gpus=8, volume="runs")
    with pytest.raises(ConfigError, match="--gpu H100"):
        skypilot(nameless)
    with pytest.raises(ConfigError, match="--setup"):
        kubernetes(Job("demo", "demo", "d", image="i", volume="v", setup="source a"))


def test_words_with_blanks_and_quotes_reach_the_command_as_they_are(tmp_path: Path) -> None:
    said = tmp_path / "said"
    _program(tmp_path, "turnwise", f'printf "%s\\n" "$@" > {said}')
    job = Job("demo", "my recipe.toml", "my runs/it's", ('name="a b"',), volume="v", image="i")
    for command in (
        ["bash", "-c", slurm(job)],
        ["bash", "-c", yaml.safe_load(kubernetes(job))["spec"]["entrypoint"]],
        ["bash", "-c", yaml.safe_load(skypilot(job))["run"]],
    ):
        subprocess.run(command, env=_path(tmp_path), timeout=20, check=True)
        words = ["train", "my recipe.toml", "--run", "my runs/it's", 'name="a b"']
        assert said.read_text().splitlines() == words


@pytest.mark.long
@pytest.mark.parametrize("nodes", [1, 2])
def test_a_job_of_slurm_saves_is_queued_again_and_goes_on(tmp_path: Path, nodes: int) -> None:
    """With programs in the place of Slurm's and Ray's: the signal reaches the trainer alone."""
    run, queued, said = tmp_path / "run", tmp_path / "queued", tmp_path / "said"
    trainer = f"""import os, pathlib, signal, sys
signal.signal(signal.SIGUSR1, lambda *_: os._exit(75))
pathlib.Path({str(said)!r}).write_text(" ".join(sys.argv[1:]))
signal.pause()
"""
    _program(tmp_path, "turnwise", trainer, "/usr/bin/env python3")
    _program(tmp_path, "scontrol", f'[ "$1" != requeue ] || echo "$2" > {queued}; echo first')
    _program(tmp_path, "srun", 'exec "$@"')
    _program(tmp_path, "ray", 'while [ "$1" != -- ]; do shift; done; shift; "$@"')
    job = Job("demo", "demo", str(run), nodes=nodes)
    environment = _path(tmp_path) | {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "first"}
    environment |= {"SLURM_JOB_NUM_NODES": str(nodes), "USER": str(os.getuid())}
    for words in ("train demo --run", "train --resume"):
        script = subprocess.Popen(["bash", "-c", slurm(job)], env=environment)
        _wait_for(said, words)
        script.send_signal(signal.SIGUSR1)
        assert script.wait(20) == 75
        assert queued.read_text() == "7\n"
        queued.unlink()
        run.mkdir(exist_ok=True)
        (run / "config.toml").touch()


def _program(folder: Path, name: str, text: str, interpreter: str = "/bin/bash") -> None:
    file = folder / name
    file.write_text(f"#!{interpreter}\n{text}\n")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)


def _path(folder: Path) -> dict[str, str]:
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


def _wait_for(file: Path, words: str) -> None:
    """Wait until a program has said how it was called."""
    end = time.monotonic() + 20
    while not (file.is_file() and file.read_text().startswith(words)):
        assert time.monotonic() < end
        time.sleep(0.01)
