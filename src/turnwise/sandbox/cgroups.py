"""Limits of the kernel on all processes of a sandbox together: control groups, version 2.

Standard library only; the launcher makes the groups. They are used where this user may make groups
with the controllers `memory` and `pids` below a group that has them: as root, in a user's systemd
session (`systemd-run --user --scope`), in a container with a delegated hierarchy. Only the code is
in a group, not the supervisor, so that the supervisor is there to say how the code ended.

Not here: version 1, and any other limit (supervisor.py).
"""

import contextlib
import errno
import os
import time

from turnwise.sandbox.protocol import Message

CONTROLLERS = {"memory", "pids"}
PREFIX = "turnwise"
REMOVE_SECONDS = 2.0
"""Time for a group to be empty after its processes were killed."""


def find(mounts: str = "/proc/self/mountinfo", own: str = "/proc/self/cgroup") -> tuple[str, str]:
    """The folder to make groups in, or an empty path with the reason.

    The folder is the nearest group above this process, or its own, that hands the controllers down
    and may be written. A group is made there for a trial. The arguments are the kernel's two
    tables.
    """
    mount = _mounted(mounts)
    if not mount:
        return "", "no cgroup v2 is mounted"
    place = os.path.normpath(os.path.join(mount, _own(own).lstrip("/")))
    while place.startswith(mount):
        if _hands_down(place) and os.access(os.path.join(place, "cgroup.procs"), os.W_OK):
            reason = _trial(place)
            return ("", reason) if reason else (place, "")
        place = os.path.dirname(place)
    return "", f"no cgroup above this process hands down {' and '.join(sorted(CONTROLLERS))} to us"


class Group:
    """The group of one sandbox."""

    def __init__(self, place: str, name: str, limits: Message) -> None:
        """Make it. Raises OSError where it cannot be."""
        self.folder = os.path.join(place, f"{PREFIX}-{os.getpid()}-{name}")
        os.mkdir(self.folder)
        try:
            # Files in memory count as memory of who wrote them.
            self._write("memory.max", limits["memory"] + limits["disk"])
            self._write("memory.oom.group", 1)
            self._write("pids.max", limits["processes"])
            with contextlib.suppress(FileNotFoundError):  # a kernel without swap accounting
                self._write("memory.swap.max", 0)
        except OSError:
            self.remove()
            raise

    def open(self) -> list[int]:
        """Two descriptors for the supervisor: the group's events, and its processes."""
        events = os.open(os.path.join(self.folder, "memory.events"), os.O_RDONLY)
        return [events, os.open(os.path.join(self.folder, "cgroup.procs"), os.O_WRONLY)]

    def remove(self) -> None:
        """Kill what is still in it, and remove it; it stays, to be removed by a later launcher, if
        the kernel holds a process that long."""
        until = time.monotonic() + REMOVE_SECONDS
        while True:
            try:
                os.rmdir(self.folder)
                return
            except OSError as error:
                if error.errno != errno.EBUSY:
                    raise
                if time.monotonic() > until:
                    return
                with contextlib.suppress(FileNotFoundError):  # before Linux 5.14
                    self._write("cgroup.kill", 1)
                time.sleep(0.001)

    def _write(self, name: str, value: int) -> None:
        descriptor = os.open(os.path.join(self.folder, name), os.O_WRONLY)
        try:
            os.write(descriptor, str(value).encode())
        finally:
            os.close(descriptor)


def kills(events: int) -> int:
    """Processes of a group that the kernel has killed for lack of memory, from `memory.events`."""
    lines = os.pread(events, 4096, 0).split(b"\n")
    counts = dict(line.split() for line in lines if line)
    return int(counts.get(b"oom_kill", 0))


def remove_left_behind(place: str) -> None:
    """Remove empty groups of launchers that were killed before they could."""
    for name in os.listdir(place):
        prefix, _, process = name.rpartition("-")[0].rpartition("-")
        if prefix == PREFIX and process.isdigit() and not _lives(process):
            with contextlib.suppress(OSError):
                os.rmdir(os.path.join(place, name))


def _lives(process: str) -> bool:
    """Whether a process is there, and not only waits for its parent to take note of its end."""
    try:
        with open(f"/proc/{process}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False


def _mounted(mounts: str) -> str:
    with open(mounts) as file:
        for line in file:
            before, _, after = line.partition(" - ")
            if after.startswith("cgroup2 "):
                return before.split()[4]
    return ""


def _own(own: str) -> str:
    with open(own) as file:
        for line in file:
            if line.startswith("0::"):
                return line[3:].strip()
    return "/"


def _hands_down(place: str) -> bool:
    try:
        with open(os.path.join(place, "cgroup.subtree_control")) as file:
            return set(file.read().split()) >= CONTROLLERS and os.access(place, os.W_OK)
    except OSError:
        return False


def _trial(place: str) -> str:
    """Why no group can be made here, or nothing."""
    try:
        remove_left_behind(place)
        limits = {"memory": 1 << 26, "disk": 0, "processes": 8}
        group = Group(place, f"trial{time.monotonic_ns()}", limits)
        for descriptor in group.open():
            os.close(descriptor)
        group.remove()
    except OSError as error:
        return f"{place}: {error.strerror}"
    return ""
