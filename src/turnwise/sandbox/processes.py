"""The processes of a sandbox, seen from its supervisor: which there are, what they use, and their
end.

Standard library only. With a process namespace of the code's own, these are all in it, and end with
its first process. Without, they are those that stem from the supervisor.

Not here: when they have to end (supervisor.py).
"""

import os
import resource
import signal
import time
from collections.abc import Collection
from typing import Protocol

from turnwise.sandbox import protocol, usage

KILL_SECONDS = 2.0
INIT, CODE = 1, 2
"""Numbers of the first two processes in a namespace of the code's own."""


class Children:
    """The supervisor's own children, and how the code ended, which is one of them."""

    def __init__(self, code: int) -> None:
        self.code = code
        self.status: int | None = None
        self.ended: set[int] = set()

    def reap(self) -> int:
        """Take the exit status of all that have ended; returns how many they are."""
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


class Processes(Protocol):
    """All processes of the code."""

    def use(self) -> tuple[float, list[int]]:
        """Seconds of processor time spent so far, and the numbers of those that are there."""

    def end(self, children: Children) -> tuple[int, int]:
        """Kill and reap every one; returns how many the code had left behind, and how many could
        not be killed in time (none, unless the kernel holds them)."""


def processes_of(spec: protocol.Message) -> Processes:
    """List the processes of a sandbox: its tier says whether they have a namespace."""
    return Namespace(spec["init"]) if "init" in spec else Descendants()


class Namespace:
    """All in a namespace below the supervisor's, whose first process takes them along when it
    ends."""

    def __init__(self, init: int) -> None:
        self.init = init
        """Number of the namespace's first process as the supervisor sees it."""

    def use(self) -> tuple[float, list[int]]:
        """See `Processes`."""
        found = usage.statistics()
        seconds = sum(
            usage.waited_seconds(fields) if pid == INIT else usage.processor_seconds(fields)
            for pid, fields in found.items()
        )
        return _of_children() + seconds, [pid for pid in found if pid != INIT]

    def end(self, children: Children) -> tuple[int, int]:
        """See `Processes`."""
        left = self._left()
        if children.status is not None and not left:
            return 0, 0  # nothing can come to be there any more
        if self.init not in children.ended:
            os.kill(self.init, signal.SIGKILL)
        until = time.monotonic() + KILL_SECONDS
        while _has_children():
            if time.monotonic() > until:
                return left, len(usage.statistics())
            time.sleep(0.0005)
            children.reap()
        return left, 0

    @staticmethod
    def _left() -> int:
        found = usage.statistics().items()
        return sum(pid not in (INIT, CODE) and usage.is_running(fields) for pid, fields in found)


class Descendants:
    """All that stem from this process, to which orphans among them come back."""

    def use(self) -> tuple[float, list[int]]:
        """See `Processes`."""
        below = _descendants()
        return _of_children() + sum(map(usage.processor_seconds, below.values())), list(below)

    def end(self, children: Children) -> tuple[int, int]:
        """See `Processes`."""
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
    """Kill what stems from this process, but for these and what stems from them. All are stopped
    first, so that none can start another while others are killed."""
    for _ in range(20):
        below = _descendants(without).items()
        running = [pid for pid, fields in below if fields[0] not in b"TZX"]
        if not running:
            break
        for pid in running:
            _signal(pid, signal.SIGSTOP)
    for pid in _descendants(without):
        _signal(pid, signal.SIGKILL)


def _descendants(without: Collection[int] = ()) -> dict[int, list[bytes]]:
    """Fields of all that stem from this process (see `usage.statistics`); without these processes
    and what stems from them."""
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


def _of_children() -> float:
    use = resource.getrusage(resource.RUSAGE_CHILDREN)
    return use.ru_utime + use.ru_stime


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
