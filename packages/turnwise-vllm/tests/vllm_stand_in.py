"""The fake server as a program that is started as vLLM is, and what is known of its processes."""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import fake_vllm


def stand_in(folder: Path, version: str = "0.32") -> str:
    """An interpreter in whose environment the stand-in is called vLLM."""
    site = folder / "site"
    package = site / "vllm" / "entrypoints" / "openai"
    package.mkdir(parents=True)
    (package.parent / "scale_out").mkdir()
    for each in (package, package.parent, package.parent.parent):
        (each / "__init__.py").touch()
    (package / "api_server.py").write_text(Path(fake_vllm.__file__).read_text())
    about = site / "vllm_fake.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Name: vllm-fake\nVersion: {version}\n")
    (about / "top_level.txt").write_text("vllm\n")
    program = folder / "python"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={site} exec {sys.executable} -S "$@"\n')
    program.chmod(0o755)
    return str(program)


def starts(notes: Path) -> list[tuple[int, list[str]]]:
    """The process and the arguments of each start that was noted in `FAKE_VLLM_NOTES`."""
    lines = notes.read_text().splitlines() if notes.exists() else []
    return [tuple(json.loads(line)) for line in lines]


def alive(process: int) -> bool:
    """Whether a process is there, and is no zombie."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def soon(condition: Callable[[], object]) -> bool:
    """Whether something comes true within two minutes."""
    deadline = time.monotonic() + 120
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return bool(condition())
