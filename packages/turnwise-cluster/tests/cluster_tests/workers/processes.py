"""Processes of this machine, by what `/proc` says of them."""

import time
from pathlib import Path


def parents() -> dict[int, int]:
    """The parent of each process that is there and is no zombie."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
        except OSError:  # it has ended
            continue
        if state != "Z":
            found[int(stat.parent.name)] = int(parent)
    return found


def descendants(process: int) -> set[int]:
    """The processes that a process has started, and those that these have."""
    known, found = parents(), {process}
    while more := {one for one, parent in known.items() if parent in found} - found:
        found |= more
    return found - {process}


def left_after(processes: set[int], seconds: float) -> set[int]:
    """Which of some processes are still there after a time, or none as soon as none is."""
    end = time.monotonic() + seconds
    while (left := processes & parents().keys()) and time.monotonic() < end:
        time.sleep(0.2)
    return left
