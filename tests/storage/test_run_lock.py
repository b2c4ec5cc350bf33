"""One writer at a time: who holds a run's lock, and what becomes of it."""

import errno
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from turnwise.errors import DataError
from turnwise.storage import run_lock
from turnwise.storage.run_lock import Owner, locked, started

HOLDS = """
import sys
from pathlib import Path
from turnwise.storage.run_lock import locked

with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def another_process(run: Path) -> Iterator["subprocess.Popen[str]"]:
    """One that holds the lock, until the end or until it is killed."""
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(run)], stdin=pipe, stdout=pipe, text=True
    )
    assert process.stdout.readline() == "held\n"
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def leave(run: Path, **changes: object) -> None:
    """The record of a process that ended without a word; by default one of a number in use."""
    run.mkdir(exist_ok=True)
    record = {"pid": os.getppid(), "started": "1", "host": socket.gethostname(), "since": "then"}
    (run / "lock").write_text(json.dumps(record | changes))


def test_a_second_writer_is_told_who_the_first_is(tmp_path: Path) -> None:
    with another_process(tmp_path) as first:
        with pytest.raises(DataError) as refused, locked(tmp_path):
            pass
        assert f"process {first.pid} on {socket.gethostname()} since 20" in str(refused.value)
        assert "\n" not in str(refused.value)
        assert (tmp_path / "lock").exists()
        first.communicate("")
    with locked(tmp_path):
        assert json.loads((tmp_path / "lock").read_text())["pid"] == os.getpid()
    assert not (tmp_path / "lock").exists()


def test_one_process_does_not_write_a_run_twice(tmp_path: Path) -> None:
    with locked(tmp_path), pytest.raises(DataError, match="being written"), locked(tmp_path):
        pass


def test_the_lock_of_a_process_that_was_killed_is_taken_over(tmp_path: Path) -> None:
    with another_process(tmp_path) as first:
        first.send_signal(signal.SIGKILL)
        first.wait()
        assert (tmp_path / "lock").exists()
        with locked(tmp_path):
            assert json.loads((tmp_path / "lock").read_text())["pid"] == os.getpid()


def test_a_lock_that_its_owner_takes_away_meanwhile_is_made_anew(tmp_path: Path) -> None:
    """Between the opening of the file and its lock; a lock on what is no longer there is none."""

    class Vanishing(type(tmp_path)):  # the system's kind of path
        taken = False

        def open(self, *arguments: Any, **named: Any) -> Any:
            file = super().open(*arguments, **named)
            if not self.taken:
                self.taken = True
                self.unlink()
            return file

    with run_lock._opened(Vanishing(tmp_path / "lock")) as file:
        assert os.path.samestat(os.fstat(file.fileno()), (tmp_path / "lock").stat())
        with pytest.raises(DataError, match="being written"), locked(tmp_path):
            pass


def test_a_lock_is_taken_away_while_it_is_held(tmp_path: Path) -> None:
    """Else it could be another process's lock by then."""

    class Looking(type(tmp_path)):  # the system's kind of path
        def unlink(self, missing_ok: bool = False) -> None:
            with pytest.raises(DataError, match="being written"), locked(tmp_path):
                pass
            super().unlink(missing_ok)

    with locked(Looking(tmp_path)):
        pass
    assert not (tmp_path / "lock").exists()


def test_a_lock_of_another_machine_is_never_taken(tmp_path: Path) -> None:
    leave(tmp_path, host="node17", pid=4)
    with pytest.raises(DataError, match=r"process 4 on another machine, node17.* delete .*lock"):
        locked(tmp_path).__enter__()
    (tmp_path / "lock").unlink()
    with locked(tmp_path):
        pass


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": 1}', "\0\0", None])
def test_what_names_no_process_that_runs_holds_nothing(tmp_path: Path, text: str | None) -> None:
    """A damaged lock, and one whose number is that of a process which began at another time."""
    leave(tmp_path)
    if text is not None:
        (tmp_path / "lock").write_text(text)
    with locked(tmp_path):
        assert json.loads((tmp_path / "lock").read_text())["pid"] == os.getpid()


def test_where_a_file_system_has_no_locks_the_record_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(file: object, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    with another_process(tmp_path) as first:
        monkeypatch.setattr(run_lock.fcntl, "flock", refuse)
        with pytest.raises(DataError, match=f"process {first.pid} on"):
            locked(tmp_path).__enter__()
        first.send_signal(signal.SIGKILL)
        first.wait()
        with locked(tmp_path):
            pass
    leave(tmp_path)
    with locked(tmp_path):
        pass


def test_a_refused_recipe_leaves_no_folder_behind(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "run"
    with pytest.raises(ZeroDivisionError), locked(run):
        _ = 1 / 0
    assert not run.exists()
    with locked(run):
        (run / "config.toml").write_text("")
    assert [path.name for path in run.iterdir()] == ["config.toml"]


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="run cannot be written: Not a directory"):
        locked(tmp_path / "file" / "run").__enter__()


def test_when_a_process_began() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert started(os.getpid()) == started(os.getpid()) != started(child.pid)
        child.communicate(b"\n")
    assert started(2**22 + 1) == ""
    assert not Owner(2**22 + 1, "", socket.gethostname(), "").runs
