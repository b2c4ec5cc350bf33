#!/usr/bin/env python3
"""Installs torch, then what it is told, into the environment whose pip comes first in PATH.

`install.py --editable ".[view]" --group dev`: the arguments of `uv pip install`. uv does it,
several times as fast as pip, from where pip's settings say that packages lie; where uv fails, pip
does it.

torch comes first, by itself: the CPU build unless a GPU is there, and it is said which. From plain
pip a Linux machine gets the build for GPUs, with 2.5 GB of libraries that a CPU has no use for. A
torch that is there already and fits is left alone. Called by the Makefile; needs only Python.
"""

import ast
import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
REQUIREMENT = re.compile(r'"(torch>=(\d+)\.(\d+),<(\d+)\.(\d+))"')
IMPATIENT = {"UV_HTTP_RETRIES": "0", "UV_HTTP_TIMEOUT": "5", "UV_HTTP_CONNECT_TIMEOUT": "5"}
"""For PyTorch's own index, which many networks do not let through: one try of 5 seconds."""
PLACES = {
    "index-url": "--default-index",
    "extra-index-url": "--index",
    "find-links": "--find-links",
    "constraint": "--constraint",
    "trusted-host": "--allow-insecure-host",
}
"""uv's names of pip's settings."""


def main() -> None:
    """Exit with the status of what failed."""
    constraint = "--constraint", str(ROOT / "constraints.txt")
    pip = ["pip", "install", "--quiet", *constraint]
    uv = ["uv", "pip", "install", "--quiet", "--python", sys.prefix, *constraint, *places()]
    if os.environ.get("PYTHONDONTWRITEBYTECODE"):
        uv.append("--compile-bytecode")  # what Python would write when it first imports
    torch(uv, pip)
    if sys.argv[1:]:
        install(uv, pip, sys.argv[1:])


def torch(uv: list[str], pip: list[str]) -> None:
    """Install the build for this machine, unless one is there."""
    found = REQUIREMENT.search((ROOT / "pyproject.toml").read_text())
    assert found is not None, "pyproject.toml bounds torch"
    low, high = (int(found[2]), int(found[3])), (int(found[4]), int(found[5]))
    there = installed()
    if there is not None and low <= numbers(there) < high:
        print(f"torch {there} is there already: left alone")
        return
    if sys.platform != "linux":
        print("torch: the build of this platform")
        install(uv, pip, [found[1]])
        return
    gpu = has_gpu()
    print("torch: a GPU is there, the build for it" if gpu else "torch: no GPU, the CPU build")
    backend = ["--torch-backend", "auto" if gpu else "cpu"]
    reason = failure(uv + backend + [found[1]], IMPATIENT)
    if reason is not None:
        print(f"torch: PyTorch's own index does not give it ({reason}): from where pip looks")
        if not gpu:
            print("torch: if that is the build for GPUs, it brings 2.5 GB that are of no use here")
        install(uv, pip, [found[1]])


def places() -> list[str]:
    """Where pip is told to look: an index of a company, a folder of packages."""
    listed = subprocess.run(["pip", "config", "list"], capture_output=True, text=True, check=False)
    settings: dict[str, str] = {}
    for line in listed.stdout.splitlines():  # what comes later counts more: files, then variables
        name, _, value = line.partition("=")
        if value:
            settings[name.rpartition(".")[2]] = ast.literal_eval(value)
    if "cert" in settings:
        os.environ.setdefault("SSL_CERT_FILE", settings["cert"])
    told = [
        f"{PLACES[name]}={value}" for name in PLACES for value in settings.get(name, "").split()
    ]
    return [*told, "--index-strategy=unsafe-best-match"]  # pip too takes the newest of all places


def installed() -> str | None:
    """The torch that is there."""
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


def install(uv: list[str], pip: list[str], arguments: list[str]) -> None:
    """By uv, or where that fails by pip, with whose status it then exits."""
    reason = failure(uv + arguments, {})
    if reason is not None:
        print(f"uv does not install {arguments[-1]} ({reason}): by pip")
        status = subprocess.run(pip + arguments, check=False).returncode
        if status:
            sys.exit(status)


def failure(command: list[str], environment: dict[str, str]) -> str | None:
    """Run uv; None, or why it failed, in some words."""
    if shutil.which(command[0]) is None:
        return "uv is not there"
    ended = subprocess.run(
        command,
        env={**environment, **os.environ},
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if ended.returncode == 0:
        return None
    lines = [line.strip() for line in ended.stderr.splitlines() if line.strip()]
    return lines[-1] if lines else f"uv ended with {ended.returncode}"


if __name__ == "__main__":
    main()
