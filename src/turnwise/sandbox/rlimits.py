"""No isolation: limits of the kernel on each process, and a user of its own if started by root.

Standard library only; runs in the launcher. The code can read what its user can read, reach the
network, and fill the disk with many files below the size limit of one. Started by root, each
sandbox has a user of its own (65000 and up), so that its processes cannot touch the supervisor or
one another; started by another user, the code has all rights of that user, and can kill the
supervisor. Results say `rlimits`, and a `Sandbox` takes this tier only with `allow_unisolated`.
"""

import contextlib
import fcntl
import itertools
import os
import sys
import tempfile

from turnwise.sandbox import kernel, namespaces, protocol, supervisor

FIRST_USER, USERS = 65000, 500
CLAIMS = "turnwise-sandbox-users"
"""File whose bytes stand for these users: a byte that is locked is a user of a sandbox."""
AT_ONCE = 1000
"""Entries of a folder that the launcher itself removes: what takes longer holds up no other."""
_NAMES = itertools.count()


class Users:
    """Users for sandboxes: no two sandboxes of this machine have one at the same time.

    Two with one user could kill each other's processes, and would share a limit on their number.
    Only root has a use for them.
    """

    def __init__(self) -> None:
        self._claims = -1
        self._held: set[int] = set()

    def claim(self, in_use: set[int]) -> int:
        """A free user; claims that are not in use any more end. The locks are this process's own:
        they end with it, and its children have none. Raises OSError where no user is free."""
        if self._claims < 0:
            place = "/run" if os.access("/run", os.W_OK) else tempfile.gettempdir()
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            self._claims = os.open(os.path.join(place, CLAIMS), flags, 0o600)
        for user in self._held - in_use:
            fcntl.lockf(self._claims, fcntl.LOCK_UN, 1, user - FIRST_USER)
        self._held &= in_use
        for user in range(FIRST_USER, FIRST_USER + USERS):
            if user not in in_use and self._locked(user):
                self._held.add(user)
                return user
        raise OSError(f"all {USERS} users of sandboxes are in use")

    def _locked(self, user: int) -> bool:
        try:
            fcntl.lockf(self._claims, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, user - FIRST_USER)
        except (BlockingIOError, PermissionError):
            return False
        return True


def prepare(spec: protocol.Message, users: Users, in_use: set[int]) -> None:
    """Give the sandbox a folder, and a user that no other has (`in_use`: those of this launcher's
    sandboxes)."""
    # The work folder is one deeper than the code may rename anything.
    outer = tempfile.mkdtemp(prefix="turnwise-sandbox-")
    os.chmod(outer, 0o711)
    spec["work"] = os.path.join(outer, "work")
    os.mkdir(spec["work"])
    if os.geteuid() == 0:
        spec["user"] = users.claim(in_use)
        os.chown(spec["work"], spec["user"], spec["user"])


def start(spec: protocol.Message, descriptors: list[int]) -> list[int]:
    """Start a supervisor to which orphans of its descendants come back; returns its pid."""
    child = os.fork()
    if child == 0:
        descriptors = namespaces.keep_only(descriptors)
        os.setsid()
        kernel.prctl(kernel.PR_SET_PDEATHSIG, 9)
        kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
        os.environ["HOME"] = os.environ["TMPDIR"] = spec["work"]
        supervisor.main(spec, descriptors)
    return [child]


def clean(spec: protocol.Message, most: int) -> bool:
    """Remove the folder, but not more than so many entries; whether it is gone. Links in it are not
    followed. What cannot be removed stays."""
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
            os.closerange(3, 1 << 16)
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
