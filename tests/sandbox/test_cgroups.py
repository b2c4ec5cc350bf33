"""Control groups: where they are looked for, what is said without them, and their limits for real.

The real ones are tested where this user may make groups (`systemd-run --user --scope`, or root with
cgroup v2), and skipped elsewhere.
"""

import dataclasses
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.sandbox.conftest import LIMITS
from turnwise.errors import ConfigError
from turnwise.sandbox import cgroups
from turnwise.sandbox.result import Status
from turnwise.sandbox.sandbox import Sandbox
from turnwise.sandbox.settings import MEBIBYTE, SandboxSettings

Maker = Callable[..., Sandbox]

PLACE, MISSING = cgroups.find()
real = pytest.mark.skipif(not PLACE, reason=MISSING)


class Tree:
    """A hierarchy of plain files, and the kernel's two tables that lead to it."""

    def __init__(self, folder: Path, own: str) -> None:
        self.root = folder / "cgroup"
        self.root.mkdir()
        self.mounts, self.own = folder / "mountinfo", folder / "own"
        self.mounts.write_text(
            "22 1 0:21 / /proc rw - proc proc rw\n"
            f"30 1 0:26 / {self.root} rw shared:4 - cgroup2 cgroup2 rw\n"
        )
        self.own.write_text(f"4:memory:/elsewhere\n0::{own}\n")

    def group(self, path: str, controllers: str) -> Path:
        folder = self.root / path
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cgroup.procs").touch()
        (folder / "cgroup.subtree_control").write_text(controllers)
        return folder

    def find(self) -> tuple[str, str]:
        return cgroups.find(str(self.mounts), str(self.own))


def test_the_nearest_group_that_hands_down(tmp_path: Path) -> None:
    """Plain files have no limits to write, so the trial fails: its reason names the place."""
    tree = Tree(tmp_path, "/user/app/scope")
    tree.group("", "cpu memory pids")
    tree.group("user", "memory pids")
    tree.group("user/app", "memory")
    tree.group("user/app/scope", "")
    place, reason = tree.find()
    assert (place, reason) == ("", f"{tree.root}/user: No such file or directory")
    assert sorted(os.listdir(tree.root / "user")) == [
        "app",
        "cgroup.procs",
        "cgroup.subtree_control",
    ]


def test_no_group_that_hands_down(tmp_path: Path) -> None:
    tree = Tree(tmp_path, "/user")
    tree.group("", "cpu")
    tree.group("user", "pids")
    assert tree.find() == ("", "no cgroup above this process hands down memory and pids to us")
    tree.mounts.write_text("22 1 0:21 / /proc rw - proc proc rw\n")
    assert tree.find() == ("", "no cgroup v2 is mounted")


def test_what_the_kernel_killed(tmp_path: Path) -> None:
    (tmp_path / "events").write_text("low 0\nhigh 0\nmax 7\noom 1\noom_kill 3\noom_group_kill 1\n")
    descriptor = os.open(tmp_path / "events", os.O_RDONLY)
    assert cgroups.kills(descriptor) == cgroups.kills(descriptor) == 3
    os.close(descriptor)


def test_groups_of_launchers_that_are_gone(tmp_path: Path) -> None:
    """Gone is also who was killed and is still in the table of processes."""
    with subprocess.Popen(["true"]) as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        killed = f"turnwise-{ended.pid}-7"
        for name in ("turnwise-1-7", "turnwise-999999999-7", "turnwise-x-7", "other-9-7", killed):
            (tmp_path / name).mkdir()
        cgroups.remove_left_behind(str(tmp_path))
    assert sorted(os.listdir(tmp_path)) == ["other-9-7", "turnwise-1-7", "turnwise-x-7"]


def test_never_silently(maker: Maker) -> None:
    with maker("namespaces", cgroups="off") as sandbox:
        assert sandbox.run_python("").limited_by == "measured"
    if PLACE:
        with maker("namespaces", cgroups="required") as sandbox:
            assert sandbox.run_python("").limited_by == "cgroup"
    else:
        with pytest.raises(ConfigError, match=r"sandbox.cgroups is required, but no cgroup"):
            Sandbox(SandboxSettings(cgroups="required")).tier  # noqa: B018


# With the kernel's own


def groups(launcher: int) -> list[Path]:
    return list(Path(PLACE).glob(f"{cgroups.PREFIX}-{launcher}-*"))


@pytest.fixture
def grouped(maker: Maker) -> Sandbox:
    return maker("namespaces", cgroups="required")


@real
def test_memory_of_all_together_is_the_kernels(grouped: Sandbox) -> None:
    """Faster than any look: ten processes that each stay within the limit of one."""
    source = """
import os, time
for _ in range(10):
    if os.fork() == 0:
        held = bytearray(200 << 20)
        time.sleep(9)
time.sleep(9)
"""
    limits = dataclasses.replace(LIMITS, memory=256 * MEBIBYTE)
    with grouped:
        result = grouped.run_python(source, limits=limits)
        assert (result.status, result.signal) == (Status.OUT_OF_MEMORY, signal.SIGKILL)
        assert result.peak_memory < 3 * limits.memory
        assert grouped.run_python("print(1)").status is Status.OK


@real
def test_number_of_processes_is_the_kernels(grouped: Sandbox) -> None:
    source = """
import os, time
count = 0
try:
    while True:
        if os.fork() == 0:
            time.sleep(20)
        count += 1
except OSError:
    print(count)
"""
    with grouped:
        assert int(grouped.run_python(source).stdout.text) == LIMITS.processes - 1


@real
def test_groups_end_with_their_sandboxes(grouped: Sandbox) -> None:
    with grouped, grouped.session() as session:
        session.run("x = 1")
        launcher = grouped.launcher_process
        folder = next(one for one in groups(launcher) if (one / "cgroup.procs").read_text())
        assert int((folder / "memory.max").read_text()) == LIMITS.memory + LIMITS.disk
        assert int((folder / "pids.max").read_text()) == LIMITS.processes
        assert len((folder / "cgroup.procs").read_text().split()) == 1
    assert groups(launcher) == []


@real
def test_groups_of_a_launcher_that_was_killed(maker: Maker) -> None:
    with maker("namespaces", cgroups="required", warm=2) as sandbox:
        sandbox.run_python("")
        launcher = sandbox.launcher_process
        os.kill(launcher, signal.SIGKILL)
        time.sleep(0.5)
        assert groups(launcher)
        with maker("namespaces", cgroups="required") as other:
            assert other.run_python("print(1)").status is Status.OK
        assert groups(launcher) == []
