"""Which torch is installed where, and from where the rest comes.

Seen by fakes of nvidia-smi, uv and pip that note their calls.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "install.py"
INDEX = "dns error"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere pip's build is small")


class Machine:
    """A folder of programs, all that is in PATH, and what they were called with."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "bin").mkdir()
        self.has("pip", "exit 0")
        self.settings = ""

    def has(self, name: str, script: str) -> None:
        """A program of this name."""
        program = self.folder / "bin" / name
        notes = self.folder / "notes"
        asked = '[ $1 = config ] && printf %s "$SETTINGS" && exit'
        noted = f'echo {name} "$@" >> {notes}'
        program.write_text(f"#!/bin/sh\n{asked}\n{noted}\n{script}\n")
        program.chmod(0o755)

    def has_torch(self, version: str) -> None:
        """Installed, as far as its metadata say."""
        info = self.folder / "packages" / f"torch-{version}.dist-info"
        info.mkdir(parents=True)
        text = f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n"
        (info / "METADATA").write_text(text)

    def install(self, *arguments: str) -> tuple[int, str, list[str]]:
        """Exit status, what is said, and the calls but `pip config`.

        The interpreter sees no packages but these.
        """
        ended = subprocess.run(
            [sys.executable, "-S", str(SCRIPT), *arguments],
            env={
                "PATH": str(self.folder / "bin"),
                "PYTHONPATH": str(self.folder / "packages"),
                "HOME": os.environ.get("HOME", "/"),
                "SETTINGS": self.settings,
            },
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        notes = self.folder / "notes"
        calls = notes.read_text().splitlines() if notes.exists() else []
        return ended.returncode, ended.stdout + ended.stderr, calls


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.mark.parametrize(
    ("driver", "told", "backend"),
    [
        ("", "no GPU, the CPU build", "cpu"),
        ("exit 9", "no GPU, the CPU build", "cpu"),
        ("echo No devices were found", "no GPU, the CPU build", "cpu"),
        ("echo 'GPU 0: something'", "a GPU is there", "auto"),
    ],
)
def test_it_is_the_build_for_the_gpu_or_for_none(
    machine: Machine, driver: str, told: str, backend: str
) -> None:
    machine.has("uv", "exit 0")
    if driver:
        machine.has("nvidia-smi", driver)
    status, said, calls = machine.install()
    assert status == 0
    assert told in said
    *asked, call = calls
    assert asked == ["nvidia-smi -L"] * bool(driver)
    assert f"--torch-backend {backend}" in call
    assert "constraints.txt" in call
    assert "torch>=" in call


def test_an_index_that_cannot_be_reached_is_told_of_and_pips_taken(machine: Machine) -> None:
    dead = f"echo 'error: something' >&2; echo '  cause: {INDEX}' >&2; exit 2"
    machine.has("uv", f'case "$*" in *--torch-backend*) {dead};; esac')
    status, said, calls = machine.install()
    assert status == 0
    assert f"does not give it (cause: {INDEX})" in said
    assert "2.5 GB" in said
    assert "--torch-backend" not in calls[1]
    assert len(calls) == 2


def test_without_uv_it_is_pip(machine: Machine) -> None:
    status, said, calls = machine.install("--editable", ".[view]")
    assert status == 0
    assert "uv is not there" in said
    assert [call.split()[:2] for call in calls] == [["pip", "install"]] * 2
    assert calls[1].endswith("constraints.txt --editable .[view]")


def test_what_uv_cannot_install_pip_does(machine: Machine) -> None:
    machine.has_torch("2.13.0")
    machine.has("uv", "echo no such package >&2; exit 1")
    status, said, calls = machine.install("a", "b")
    assert status == 0
    assert "uv does not install b (no such package): by pip" in said
    assert [call.split()[0] for call in calls] == ["uv", "pip"]


def test_uv_looks_where_pip_looks(machine: Machine) -> None:
    machine.has_torch("2.13.0")
    machine.has("uv", "exit 0")
    machine.settings = "\n".join(
        [
            "global.index-url='http://a'",
            "global.extra-index-url='b\\nc'",
            ":env:.index-url='http://d'",
        ]
    )
    _, _, (call,) = machine.install("--editable", ".")
    assert "--default-index=http://d --index=b --index=c" in call
    assert call.endswith(" --editable .")


def test_a_pip_that_fails_fails(machine: Machine) -> None:
    machine.has("pip", "exit 3")
    assert machine.install()[0] == 3


@pytest.mark.parametrize("version", ["2.11.0", "2.12.1+cu130", "2.15.1+cpu"])
def test_a_torch_that_fits_is_left_alone(machine: Machine, version: str) -> None:
    machine.has("uv", "exit 0")
    machine.has_torch(version)
    assert machine.install() == (0, f"torch {version} is there already: left alone\n", [])


@pytest.mark.parametrize("version", ["2.10.0", "2.16.0", "3.11.0"])
def test_a_torch_that_does_not_fit_is_replaced(machine: Machine, version: str) -> None:
    machine.has("uv", "exit 0")
    machine.has_torch(version)
    _, said, calls = machine.install()
    assert "left alone" not in said
    assert len(calls) == 1
