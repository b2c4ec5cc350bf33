"""One writer at a time for a run's folder: the file `lock` says which process is writing.

The kernel keeps the lock, so it ends with its process however that ends, and a process number that
was given to another program means nothing. The record in the file is for people, for a file system
without such locks, and for a folder that several machines share: whether a process runs on another
machine cannot be seen from here, so its lock is never taken, and the error says what to do. Reading
a run needs no lock.
"""

import errno
import fcntl
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

from turnwise.errors import DataError

LOCK = "lock"
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
"""Errors of file systems that have no locks."""


@dataclass(frozen=True)
class Owner:
    """A process that writes a run."""

    pid: int
    started: str
    """The process's start in ticks, where known: processes with one number differ in it."""
    host: str
    since: str
    """In UTC, for people."""

    @classmethod
    def present(cls) -> "Owner":
        now = datetime.now(UTC).isoformat(sep=" ", timespec="seconds")
        return cls(os.getpid(), started(os.getpid()), socket.gethostname(), now)

    @property
    def here(self) -> bool:
        return self.host == socket.gethostname()

    @property
    def runs(self) -> bool:
        """Whether it is another process of this machine that still runs."""
        # Our own number in a record is an earlier process's: in containers they come again.
        if not self.here or self.pid == os.getpid():
            return False
        try:
            # Signal 0 reaches nothing: it asks whether the process is there.
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:  # another user's
            pass
        return started(self.pid) == self.started


def started(pid: int) -> str:
    """The time when a process began, in the kernel's ticks; empty where that cannot be seen."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    # Field 22 of the line. The name in brackets before it may have blanks and brackets of its own;
    # after it come fields 3 and on.
    return text.rpartition(")")[2].split()[19]


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Make this process the only writer of the folder, which is made if need be. The lock of a
    process that no longer runs is taken over. Raises DataError, in one line, when another process,
    or machine, may hold it, or the folder cannot be written."""
    there = folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = _opened(folder / LOCK)
    except OSError as error:
        raise DataError(f"{folder} cannot be written: {error.strerror}") from error
    with file:
        try:
            yield
        finally:
            with suppress(OSError):  # a disk that fails: the kernel's lock ends all the same
                # While it is still locked: no other process can hold a lock on it.
                (folder / LOCK).unlink(missing_ok=True)
                if not there:
                    folder.rmdir()  # which is refused where anything was written


def _opened(path: Path) -> TextIO:
    """The lock's file, which is ours now and says so."""
    while True:
        file = path.open("a+", encoding="utf-8")
        try:
            _take(file, path)
            # The lock is on the opened file: its name may have gone since, or be another's.
            if path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return _signed(file)
        except BaseException:
            file.close()
            raise
        file.close()  # its owner ended between the two calls, and took it away


def _take(file: TextIO, path: Path) -> None:
    """Lock the file; raise DataError where another process holds the lock."""
    free = True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        free = False
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
    owner = _owner(file)
    if not free or (owner is not None and owner.runs):
        by = f"process {owner.pid} on {owner.host} since {owner.since}" if owner else "a process"
        raise DataError(
            f"{path.parent} is being written by {by}: let it end, or stop it first; "
            "`turnwise show` and `turnwise evaluate` may read meanwhile"
        )
    if owner is not None and not owner.here:
        raise DataError(
            f"{path.parent} was being written by process {owner.pid} on another machine, "
            f"{owner.host}, since {owner.since}: if that no longer runs there, delete {path}"
        )


def _owner(file: TextIO) -> Owner | None:
    file.seek(0)
    try:
        return Owner(**json.loads(file.read()))
    except (ValueError, TypeError):
        return None


def _signed(file: TextIO) -> TextIO:
    file.seek(0)
    file.truncate()
    file.write(json.dumps(asdict(Owner.present())) + "\n")
    file.flush()
    return file


def is_locked(folder: Path) -> bool:
    """Whether another process of this machine writes the folder now."""
    try:
        with (folder / LOCK).open(encoding="utf-8") as file:
            # A shared lock, or two that look at once would take each other for a writer.
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            owner = _owner(file)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        return False
    return owner is not None and owner.runs
