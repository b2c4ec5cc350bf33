"""The demo's first steps on machines that newcomers have: AVX2 alone, no compiler, one core, and
as if not on Linux."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

AVX2 = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
}
FIRST_STEPS = (
    "train.steps=1",
    "train.tasks_per_step=2",
    "train.group_size=2",
    "evaluation.tasks=0",
)
SPEED = """
import json, torch
from turnwise.forward.compute_type import _measured
from turnwise.config import load_recipe
gain = _measured(576, 1536, torch.device("cpu"))
print(json.dumps([torch.backends.cpu.get_cpu_capability(), gain, load_recipe("demo").threads]))
"""

ELSEWHERE = """
import builtins, io, os, resource

def missing(path):
    if str(path).startswith(("/proc/", "/sys/")):
        raise FileNotFoundError(2, "No such file or directory", path)

def first(look, function):
    return lambda path, *more, **named: look(path) or function(path, *more, **named)

def limited(kind):
    if kind == resource.RLIMIT_AS:
        raise ValueError("current limit exceeds maximum limit")

del os.sched_getaffinity
io.open = builtins.open = first(missing, io.open)
os.stat = first(missing, os.stat)
resource.setrlimit = first(limited, resource.setrlimit)
"""
"""What Python has on Linux alone, taken away as on macOS: a file that it reads when it starts."""


def machine(environment: dict[str, str], *before: str) -> tuple[str, float, int]:
    """The instructions that PyTorch uses, the speed of bfloat16 over float32, and the threads."""
    done = subprocess.run(
        [*before, sys.executable, "-c", SPEED],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    capability, gain, threads = json.loads(done.stdout)
    return capability, gain, threads


def train(folder: Path, environment: dict[str, str], *before: str) -> str:
    """The first steps of the demo; what was printed."""
    command = [*before, sys.executable, "-m", "turnwise", "train", "demo", "--run", str(folder)]
    done = subprocess.run(
        [*command, *FIRST_STEPS],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_avx2_alone(tmp_path: Path) -> None:
    """The variables work: bfloat16 is slow with them, and the run computes in float32."""
    capability, gain, _ = machine(AVX2)
    assert capability == "AVX2"
    assert gain < 0.8
    assert "updates in float32" in train(tmp_path / "run", AVX2)


def test_no_compiler(tmp_path: Path) -> None:
    environment = {"PATH": str(tmp_path)}
    assert shutil.which("gcc", path=environment["PATH"]) is None
    train(tmp_path / "run", environment)


@pytest.mark.skipif(shutil.which("taskset") is None, reason="needs taskset (util-linux)")
def test_one_core(tmp_path: Path) -> None:
    one = ("taskset", "--cpu-list", str(min(os.sched_getaffinity(0))))
    assert machine({}, *one)[2] == 1
    assert "computing with 1 thread," in train(tmp_path / "run", {}, *one)


def test_not_on_linux(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(ELSEWHERE)
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    assert "report.md says more" in train(tmp_path / "run", {"PYTHONPATH": path})
