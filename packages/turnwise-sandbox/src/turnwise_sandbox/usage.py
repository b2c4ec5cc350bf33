"""The use of processes, as the kernel counts it: memory, sockets, files in memory, processor time.

Standard library only. Counted are private memory, swap, huge pages, shared memory, and buffers of
sockets; not the system's files that are mapped, nor the kernel's own records (some MiB a process).
What could not be counted is refused beforehand (see seccomp.py).
"""

import contextlib
import os
from collections.abc import Iterable, Mapping

_TICKS = os.sysconf("SC_CLK_TCK")
_IN_STATUS = (b"RssAnon", b"RssShmem", b"VmSwap", b"HugetlbPages")
_IN_ROLLUP = (b"Pss_Anon", b"Pss_Shmem", b"SwapPss", b"Shared_Hugetlb", b"Private_Hugetlb")
UNIX_SOCKET = 320 << 10
"""Bytes in one socket, at most: the kernel's standard buffer (208 KiB), which cannot be changed
from inside, and half of it again for the message that goes beyond."""
_DATAGRAMS = 11
"""Messages, each of another sender, that a datagram socket may hold."""
_SOCKET = 4 << 10
"""Bytes of a socket itself."""
_INTERNET = ("tcp", "tcp6", "udp", "udp6")


def statistics() -> dict[int, list[bytes]]:
    """Fields from the state on of /proc/PID/stat, of all processes that are there to be seen."""
    found = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):  # it has ended
            # The name before may have spaces and brackets in it.
            fields = _read(f"/proc/{name}/stat").rpartition(b")")[2].split()
            if len(fields) > 14:
                found[int(name)] = fields
    return found


def processor_seconds(fields: list[bytes]) -> float:
    """Seconds that a process has spent, with those of its children that it has waited for."""
    return sum(map(int, fields[11:15])) / _TICKS


def memory(processes: Iterable[int], most: int) -> int:
    """Bytes that processes hold together. What they share is counted for each, as long as the sum
    is not above `most`; then in parts, which takes longer."""
    numbers = list(processes)
    quick = {pid: _sum(f"/proc/{pid}/status", _IN_STATUS) or 0 for pid in numbers}
    if sum(quick.values()) <= most:
        return sum(quick.values())
    total = 0
    for pid in numbers:
        exact = _sum(f"/proc/{pid}/smaps_rollup", _IN_ROLLUP)
        total += quick[pid] if exact is None else exact  # one may hide what it is made of
    return total


def sockets() -> int:
    """Bytes that the buffers of all sockets in this network namespace may hold."""
    used = _counts("/proc/self/net/sockstat").get("sockets", 0)
    if not used:
        return 0
    # The table ends its lines with names as they were given, which may have ends of lines in them:
    # what is no whole line is counted as one, and lines do not tell how many sockets there are.
    rows = [line.split() for line in _read("/proc/self/net/unix").splitlines()[1:]]
    total = sum(UNIX_SOCKET * (_DATAGRAMS if row[4:5] == [b"0002"] else 1) for row in rows)
    return total + sum(_queued(f"/proc/self/net/{kind}") for kind in _INTERNET) + _SOCKET * used


def files(places: Iterable[str]) -> tuple[int, int]:
    """Bytes and number of files in file systems in memory; attributes count as files."""
    found = [os.statvfs(place) for place in places]
    size = sum((one.f_blocks - one.f_bfree) * one.f_frsize for one in found)
    return size, sum(one.f_files - one.f_ffree - 1 for one in found)


def kills(events: int) -> int:
    """Processes killed for lack of memory, from the `memory.events` or, in version 1, the
    `memory.oom_control` of a control group."""
    lines = os.pread(events, 4096, 0).split(b"\n")
    counts = dict(line.split() for line in lines if line)
    return int(counts.get(b"oom_kill", 0))


def all_is_counted() -> bool:
    """Whether this kernel reports what `memory` and `sockets` need."""
    places = ("/proc/self/smaps_rollup", "/proc/self/net/unix", "/proc/self/net/sockstat")
    return all(os.path.exists(place) for place in places)


def _queued(table: str) -> int:
    """Bytes in the queues of a table of internet sockets, and as much again for their frames."""
    total = 0
    for line in _read(table).splitlines()[1:]:
        sent, _, received = line.split()[4].partition(b":")
        total += 2 * (int(sent, 16) + int(received, 16))
    return total


def _counts(table: str) -> Mapping[str, int]:
    rows = (line.split() for line in _read(table).decode().splitlines())
    return {row[0].rstrip(":"): int(row[2]) for row in rows if len(row) > 2}


def _sum(path: str, names: tuple[bytes, ...]) -> int | None:
    """Bytes of these lines together, which are in kB; None where they cannot be read."""
    try:
        rows = [line.split() for line in _read(path).splitlines()]
    except OSError:
        return None
    found = [int(row[1]) for row in rows if row and row[0].rstrip(b":") in names]
    return 1024 * sum(found) if found else None


def _read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:
        return file.readall()
