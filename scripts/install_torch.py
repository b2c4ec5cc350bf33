#!/usr/bin/env python3
"""Installs the torch that fits this machine into the environment whose pip comes first in PATH.

The CPU build unless a GPU is there, and says which: from plain pip a Linux machine gets the build
for GPUs, with 2.5 GB of libraries that a CPU has no use for. uv knows where PyTorch keeps its
builds; where that place cannot be reached, pip takes what it finds, with the version that
constraints.txt has. A torch that is there already and fits is left alone. Called by the Makefile;
needs nothing but Python.
"""

import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
REQUIREMENT = re.compile(r'"(torch>=(\d+)\.(\d+),<(\d+)\.(\d+))"')
SECONDS = "5"
"""How long uv waits for an answer of PyTorch's own index; it tries once."""


def main() -> None:
    """Leave it, or install it: with the exit status of pip where that fails."""
    found = REQUIREMENT.search((ROOT / "pyproject.toml").read_text())
    assert found is not None, "pyproject.toml bounds torch"
    low, high = (int(found[2]), int(found[3])), (int(found[4]), int(found[5]))
    there = installed()
    if there is not None and low <= numbers(there) < high:
        print(f"torch {there} is there already: left alone")
        return
    if sys.platform != "linux":
        print("torch: the build of this platform, by pip")
        sys.exit(by_pip(found[1]))
    gpu = has_gpu()
    print("torch: a GPU is there, the build for it" if gpu else "torch: no GPU, the CPU build")
    reason = by_uv(found[1], "auto" if gpu else "cpu")
    if reason is not None:
        print(
            f"torch: PyTorch's own index does not give it ({reason}): by pip, from where it looks"
        )
        if not gpu:
            print("torch: if that is the build for GPUs, it brings 2.5 GB that are of no use here")
        sys.exit(by_pip(found[1]))


def installed() -> str | None:
    """The version that is there."""
    try:
        return version("torch")
    except PackageNotFoundError:
        return None


def numbers(release: str) -> tuple[int, int]:
    """Of 2.13.0+cpu: 2 and 13."""
    first, second = release.split(".")[:2]
    return int(first), int(second)


def has_gpu() -> bool:
    """Whether NVIDIA's driver names one."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return False
    try:
        told = subprocess.run([tool, "-L"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return told.returncode == 0 and "GPU" in told.stdout


def by_uv(requirement: str, backend: str) -> str | None:
    """None if it is installed; else why not, in some words."""
    uv = shutil.which("uv")
    if uv is None:
        return "uv is not there"
    patience = {"UV_HTTP_TIMEOUT": SECONDS, "UV_HTTP_CONNECT_TIMEOUT": SECONDS}
    ended = subprocess.run(
        [
            *(uv, "pip", "install", "--python", sys.prefix, "--torch-backend", backend),
            *("--constraint", str(ROOT / "constraints.txt"), requirement),
        ],
        env={"UV_HTTP_RETRIES": "0", **patience, **os.environ},
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if ended.returncode == 0:
        return None
    lines = [line.strip() for line in ended.stderr.splitlines() if line.strip()]
    return lines[-1] if lines else f"uv ended with {ended.returncode}"


def by_pip(requirement: str) -> int:
    """pip's exit status."""
    constraint = "--constraint", str(ROOT / "constraints.txt")
    command = ["pip", "install", "--quiet", *constraint, requirement]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    main()
