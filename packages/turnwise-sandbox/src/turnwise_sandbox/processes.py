"""The processes of a sandbox, seen from its supervisor: which there are, what they use, their end.

Standard library only. They stem from the supervisor, to which orphans among them come back.
"""

import os
import resource
import signal
import time
from collections.abc import Collection

from turnwise_sandbox import usage

KILL_SECONDS = 2.0


class Children:
    """The supervisor's own children, and how the code ended, which is one of them."""

    def __init__(self, code: int) -> None:
        self.code = code
        self.status: int | None = None
        self.ended: set[int] = set()

    def reap(self) -> int:
        """Take the exit status of all that have ended; returns their number."""
        count = 0
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return count
            if pid == 0:
                return count
            count += 1
            self.ended.add(pid)
            if pid == self.code:
                self.status = status


def use() -> tuple[float, list[int]]:
    """Processor seconds of the code's processes so far, and the numbers of those that are there."""
    below, ended = _descendants(), resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = sum(map(usage.processor_seconds, below.values()))
    return ended.ru_utime + ended.ru_stime + seconds, list(below)


def end(children: Children) -> tuple[int, int]:
    """Kill and reap all; returns how many the code had left behind, and how many the kernel
    holds."""
    killed = 0
    until = time.monotonic() + KILL_SECONDS
    while True:
        kill_descendants()
        running = children.status is None
        killed += children.reap() - (running and children.status is not None)
        if not _has_children():
            return killed, 0
        if time.monotonic() > until:
            return killed, len(_descendants())
        time.sleep(0.0005)


def kill_descendants(without: Collection[int] = ()) -> None:
    """Kill what stems from this process, but for these and theirs. All are stopped first, so that
    none can start another meanwhile."""
    # Again, since one may have started another before it was stopped.
    for _ in range(20):
        below = _descendants(without).items()
        running = [pid for pid, fields in below if fields[0] not in b"TZX"]
        if not running:
            break
        for pid in running:
            _signal(pid, signal.SIGSTOP)
    for pid in _descendants(without):
        _signal(pid, signal.SIGKILL)


def keep_only(descriptors: list[int]) -> list[int]:
    """Close every descriptor but the standard ones and these; returns their new numbers."""
    high = [os.dup2(one, 64 + position) for position, one in enumerate(descriptors)]
    os.closerange(3, 64)
    os.closerange(64 + len(high), 1 << 16)
    return high


def _descendants(without: Collection[int] = ()) -> dict[int, list[bytes]]:
    """Fields (`usage.statistics`) of all that stem from this process, but for these and theirs."""
    seen = usage.statistics()
    me = os.getpid()
    stemming: dict[int, list[bytes]] = {}
    for pid in seen:
        ancestor, steps = pid, 0
        while ancestor in seen and ancestor != me and ancestor not in without and steps < len(seen):
            ancestor, steps = int(seen[ancestor][1]), steps + 1
        if ancestor == me and pid != me:
            stemming[pid] = seen[pid]
    return stemming


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True
