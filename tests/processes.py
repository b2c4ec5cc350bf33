"""Programs in processes of their own, and what has become of processes."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest


def run_python(
    program: str, *arguments: str | Path, **options: Any
) -> "subprocess.CompletedProcess[str]":
    """Run a program to its end, which is no error; options are those of `subprocess.run`."""
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, **options)


def _has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


ipv6 = pytest.mark.skipif(not _has_ipv6(), reason="this machine has no address of IPv6")
"""Marks a test that listens at ::1."""


def ended(processes: Iterable[int]) -> bool:
    """Whether none of them runs any more, after a moment in which killed ones vanish."""
    left = list(processes)
    assert left, "no process is named"
    for _ in range(100):
        left = [one for one in left if _runs(one)]
        if not left:
            return True
        time.sleep(0.05)
    return False


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (ProcessLookupError, FileNotFoundError):
        return False
    return state != "Z"
