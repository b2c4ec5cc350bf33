"""Jobs of schedulers: they begin the run or go on with it, and Slurm's saves and is queued again.

With programs in the place of turnwise, Slurm's, Ray's and SkyPilot's.
"""

import os
import signal
import stat
import subprocess
import time
from pathlib import Path

import pytest
import yaml

from turnwise.config import load_recipe

FILES = Path("examples/clusters")


@pytest.mark.wing("cluster")
@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("name", ["kubernetes", "skypilot"])
def test_a_job_begins_its_run_and_goes_on_with_it(name: str, nodes: int, tmp_path: Path) -> None:
    job, run, said = yaml.safe_load((FILES / f"{name}.yaml").read_text()), "run", tmp_path / "said"
    _program(tmp_path, "turnwise", f'echo "$@" > {said}')
    _program(tmp_path, "sky_templates/ray/start_cluster", "touch $HOME/started")
    command = job["run"] if name == "skypilot" else job["spec"]["entrypoint"]
    environment = _path(tmp_path) | {"HOME": str(tmp_path), "SKYPILOT_NODE_RANK": "0"}
    environment |= {"SKYPILOT_NUM_NODES": str(nodes)}

    def words() -> list[str]:
        here = ["bash", "-c", command.replace("/runs/demo", run)]
        subprocess.run(here, env=environment, cwd=tmp_path, timeout=20, check=True)
        return said.read_text().split()

    train, recipe, option, folder, *changes = words()
    assert (train, recipe, option, folder) == ("train", "demo", "--run", run)
    load_recipe("demo", [*changes, "cluster.workers=8"])
    assert ("cluster.address=auto" in changes) == (name == "kubernetes" or nodes > 1)
    assert (tmp_path / "started").exists() == (name == "skypilot" and nodes > 1)
    (tmp_path / run).mkdir()
    (tmp_path / run / "config.toml").touch()
    assert words() == ["train", "--resume", run]


def test_skypilots_other_machines_train_nothing(tmp_path: Path) -> None:
    command = yaml.safe_load((FILES / "skypilot.yaml").read_text())["run"]
    _program(tmp_path, "sky_templates/ray/start_cluster", "")
    environment = {"HOME": str(tmp_path), "SKYPILOT_NODE_RANK": "1", "SKYPILOT_NUM_NODES": "2"}
    subprocess.run(["/bin/bash", "-c", command], env=environment, timeout=20, check=True)


@pytest.mark.long
@pytest.mark.wing("cluster")
@pytest.mark.parametrize("nodes", [1, 2])
def test_a_job_of_slurm_saves_is_queued_again_and_goes_on(
    tmp_path: Path, nodes: int, request: pytest.FixtureRequest
) -> None:
    """The signal reaches the trainer alone, and none of another job on the node."""
    run, queued, said = tmp_path / "runs/demo", tmp_path / "queued", tmp_path / "said"
    trainer = f"""import os, pathlib, signal, sys
signal.signal(signal.SIGUSR1, lambda *_: os._exit(75))
pathlib.Path({str(said)!r}).write_text(" ".join(sys.argv[1:]))
signal.pause()
"""
    _program(tmp_path, "turnwise", trainer, "/usr/bin/env python3")
    _program(tmp_path, "scontrol", f'[ "$1" != requeue ] || echo "$2" > {queued}; echo first')
    _program(tmp_path, "srun", 'exec "$@"')
    _program(tmp_path, "ray", 'while [ "$1" != -- ]; do shift; done; shift; "$@"')
    environment = _path(tmp_path) | {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "first"}
    environment |= {"SLURM_JOB_NUM_NODES": str(nodes), "USER": str(os.getuid())}
    neighbour = [tmp_path / "turnwise", "train", "another"]
    other = subprocess.Popen(neighbour, env=environment | {"SLURM_JOB_ID": "77"})
    request.addfinalizer(lambda: (other.kill(), other.wait()))
    _wait_for(said, "train another")
    for words in ("train demo --run", "train --resume"):
        file = (FILES / "slurm.sbatch").resolve()
        script = subprocess.Popen(["bash", file], env=environment, cwd=tmp_path)
        _wait_for(said, words)
        assert said.read_text().endswith("cluster.address=auto") == (nodes > 1 and "--run" in words)
        script.send_signal(signal.SIGUSR1)
        assert script.wait(20) == 75
        assert queued.read_text() == "7\n"
        queued.unlink()
        run.mkdir(parents=True, exist_ok=True)
        (run / "config.toml").touch()
    assert other.poll() is None


def _program(folder: Path, name: str, text: str, interpreter: str = "/bin/bash") -> None:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
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
