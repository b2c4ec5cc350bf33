"""No isolation: a program of this machine with limits, a deadline, and an end for its children.

Standard library only; runs in the launcher. The code can read what its user can read, reach the
network, and fill the disk with many files. Started by root, each sandbox has a user of its own,
which cannot touch the supervisor; started by another user, the code has all its rights, and can
kill the supervisor.
"""

import contextlib
import itertools
import os
import sys
import tempfile

from turnwise.prctl import PDEATHSIG, SUBREAPER, prctl
from turnwise_sandbox import processes, protocol, supervisor

AT_ONCE = 1000
"""Entries of a folder that the launcher itself removes: what takes longer holds up no other."""
_NAMES = itertools.count()


def prepare(spec: protocol.Message) -> None:
    # The work folder is one deeper than the code may rename anything.
    outer = tempfile.mkdtemp(prefix="turnwise-sandbox-")
    # The code's user gets through it, but neither lists nor changes it.
    os.chmod(outer, 0o711)
    spec["work"] = os.path.join(outer, "work")
    os.mkdir(spec["work"])
    if "user" in spec:
        os.chown(spec["work"], spec["user"], spec["user"])


def start(spec: protocol.Message, descriptors: list[int]) -> int:
    """Start a supervisor to which orphans of its descendants come back; returns its pid."""
    child = os.fork()
    if child == 0:
        descriptors = processes.keep_only(descriptors)
        os.setsid()
        prctl(PDEATHSIG, 9)
        prctl(SUBREAPER, 1)
        os.environ["HOME"] = os.environ["TMPDIR"] = spec["work"]
        supervisor.main(spec, descriptors)
    return child


def clean(spec: protocol.Message, most: int) -> bool:
    """Remove the folder, but at most so many entries; whether it is gone. Links are not followed,
    and what cannot be removed stays."""
    outer = os.path.dirname(spec["work"])
    # Folders are moved up before they are emptied: the code may have nested them deeper than the
    # system takes paths, or Python calls.
    waiting: list[str] = []
    with contextlib.suppress(OSError):  # code of this very user can have removed it
        waiting += [entry.path for entry in os.scandir(outer)]
    count = 0
    while waiting:
        folder = waiting.pop()
        with contextlib.suppress(OSError):
            os.chmod(folder, 0o700)
            with os.scandir(folder) as entries:
                for entry in entries:
                    count += 1
                    if count > most:
                        return False
                    moved = os.path.join(outer, str(next(_NAMES)))
                    if _removed_or_moved(entry, moved):
                        waiting.append(moved)
            os.rmdir(folder)
    with contextlib.suppress(OSError):
        os.rmdir(outer)
    return True


def start_cleaning(spec: protocol.Message) -> int:
    """Start a process that removes the folder while the launcher goes on; returns its pid."""
    child = os.fork()
    if child == 0:
        try:
            os.closerange(3, 1 << 16)  # the launcher's: its host would not see it end
            clean(spec, sys.maxsize)
        finally:
            os._exit(0)
    return child


def _removed_or_moved(entry: "os.DirEntry[str]", moved: str) -> bool:
    """Remove a file or a link, or move a folder; whether there is a folder to be emptied now."""
    with contextlib.suppress(OSError):
        if entry.is_dir(follow_symlinks=False):
            os.chmod(entry.path, 0o700)
            os.rename(entry.path, moved)
            return True
        os.unlink(entry.path)
    return False
