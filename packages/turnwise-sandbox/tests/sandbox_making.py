"""Sandboxes for tests: one for each tier that this machine has; limits are small on purpose."""

import os
import sys
import time
from pathlib import Path

import pytest

from turnwise.errors import ConfigError
from turnwise.sandbox.settings import MEBIBYTE, Limits, SandboxSettings
from turnwise_sandbox.sandbox import Sandbox

LIMITS = Limits(
    seconds=60.0,  # where the machine is busy a second of processor time takes long
    cpu_seconds=1.0,
    memory=256 * MEBIBYTE,
    processes=24,
    open_files=64,
    disk=8 * MEBIBYTE,
    files=256,
    output=MEBIBYTE,
)


def interpreter() -> str:
    """This one; or the system's, where root's own cannot be read by users of tier unisolated."""
    own = Path(sys.executable).resolve()
    private = any(not parent.stat().st_mode & 0o001 for parent in own.parents)
    system = Path("/usr/bin/python3")
    return str(system) if private and os.geteuid() == 0 and system.exists() else ""


def settings_for(tier: str, **changes: object) -> SandboxSettings:
    values: dict[str, object] = {"tier": tier, "limits": LIMITS, "warm": 0, "concurrency": 4}
    values |= {"python": interpreter() if tier == "unisolated" else ""}
    return SandboxSettings(**(values | changes))


def make(tier: str, **changes: object) -> Sandbox:
    sandbox = Sandbox(settings_for(tier, **changes))
    try:
        assert sandbox.find_tier() == tier
    except ConfigError as error:
        pytest.skip(str(error).partition(";")[0][-200:])
    return sandbox


def processes_below(pid: int) -> set[int]:
    """All processes that stem from one, seen from the machine."""
    parents: dict[int, int] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        parents[int(name)] = int(fields[1])
    found, new = set[int](), {pid}
    while new:
        new = {child for child, parent in parents.items() if parent in new} - found
        found |= new
    return found


def wait_for_none_below(pid: int, seconds: float = 60.0) -> set[int]:
    """What still stems from a process after a while; empty as soon as nothing does."""
    until = time.monotonic() + seconds
    while (left := processes_below(pid)) and time.monotonic() < until:
        time.sleep(0.02)
    return left
