"""Promise 12: importing any module of turnwise does nothing but define what is in it.

Each module is imported in one fresh process, after the libraries that they use; after each the
process is looked at: what was printed, the random state of everybody, the environment, files.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sources import PACKAGES, modules

IMPORTS = """
import importlib, os, random, signal, sys

import numpy, rich.style, torch._dynamo, transformers

random.seed(1), numpy.random.seed(2), torch.manual_seed(3)


def state():
    return {
        "random": random.getstate(),
        "numpy": numpy.random.get_state()[1].tolist(),
        "torch": torch.get_rng_state().tolist(),
        "threads": torch.get_num_threads(),
        "settings": (torch.get_default_dtype(), torch.is_grad_enabled()),
        "signals": [signal.getsignal(number) for number in (2, 10, 15)],
        "environment": os.environ.copy(),
        "files": (os.getcwd(), os.listdir()),
        "printed": [os.fstat(number).st_size for number in (1, 2)],
    }


before = state()
for name in sys.argv[1:]:
    importlib.import_module(name)
    sys.stdout.flush(), sys.stderr.flush()
    after = state()
    if changed := [part for part in before if after[part] != before[part]]:
        raise SystemExit(f"{name} changes {changed}")
print("all of them")
"""
"""Libraries that change such things as they are loaded are loaded first."""


@pytest.mark.long
def test_importing_any_module_changes_and_says_nothing(tmp_path: Path) -> None:
    home, work, out = tmp_path / "home", tmp_path / "work", tmp_path / "out"
    home.mkdir()
    work.mkdir()
    environment = {"HOME": str(home), "PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"}
    environment["PYTHONPATH"] = os.pathsep.join(str(package.parent) for package in PACKAGES)
    names = [name for _, name in modules()]
    command = [sys.executable, "-W", "error", "-c", IMPORTS, *names]
    with out.open("w") as file:
        done = subprocess.run(command, cwd=work, env=environment, stdout=file, stderr=file)
    assert (done.returncode, out.read_text()) == (0, "all of them\n")
    assert not [*home.rglob("*"), *work.rglob("*")]
