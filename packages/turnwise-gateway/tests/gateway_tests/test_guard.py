"""The guard of an agent's program: its code, a start that fails, and a run that is gone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import ended
from turnwise_gateway import guard


def start(*command: str) -> tuple["subprocess.Popen[bytes]", int]:
    """A guard and the descriptor of what it tells."""
    told, tell = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", guard.__file__, str(tell), *command],
        stdin=subprocess.PIPE,
        pass_fds=[tell],
        start_new_session=True,
    )
    os.close(tell)
    return process, told


def finish(process: "subprocess.Popen[bytes]", told: int) -> tuple[int, bytes]:
    with open(told, "rb") as file:
        code = process.wait(timeout=20)
        process.stdin.close()
        return code, file.read()


@pytest.mark.parametrize(
    ("command", "code"), [("exit 0", 0), ("exit 7", 7), ("exit 1", 1), ("kill -9 $$", 137)]
)
def test_it_ends_as_the_program_does(command: str, code: int) -> None:
    assert finish(*start("sh", "-c", command)) == (code, b"")


def test_a_program_that_cannot_be_started_is_told_where_no_program_can() -> None:
    code, why = finish(*start("/no-such-program"))
    assert code == 1
    assert b"No such file" in why
    assert finish(*start("sh", "-c", "ls /proc/self/fd | wc -l | grep -q '^4$'")) == (0, b"")


def test_the_program_and_its_children_end_with_the_run(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    process, told = start(
        "sh", "-c", f"sleep 60 & echo $$ $! > {pids}.new; mv {pids}.new {pids}; wait"
    )
    while not pids.exists():
        assert process.poll() is None
    process.stdin.close()  # as the kernel does when the run is killed
    process.wait(timeout=20)
    os.close(told)
    assert ended(map(int, pids.read_text().split()))
