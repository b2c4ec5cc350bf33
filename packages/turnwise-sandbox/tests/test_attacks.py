"""Code that is after its own grade, or after the machine: each attack ends as the code's own doing,
in every tier that this machine has, and the next run works."""

import ctypes
import dataclasses
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import turnwise
import turnwise_sandbox
from turnwise.sandbox.result import Status
from turnwise.sandbox.settings import Limits
from turnwise_sandbox.sandbox import Sandbox

ON_THE_SUPERVISOR = """
import os, resource, signal
reached = []
def tried(name, call, *arguments):
    try:
        call(*arguments)
        reached.append(name)
    except (OSError, ValueError):
        pass
others = {os.getppid(), *range(1, 40)} - {0, os.getpid()}
for pid in others:
    for kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_CPU, resource.RLIMIT_AS):
        tried(f"prlimit {pid}", resource.prlimit, pid, kind, (0, 0))
    tried(f"nice {pid}", os.setpriority, os.PRIO_PROCESS, pid, 19)
    tried(f"affinity {pid}", os.sched_setaffinity, pid, {0})
    tried(f"scheduler {pid}", os.sched_setscheduler, pid, os.SCHED_IDLE, os.sched_param(0))
    for number in (signal.SIGINT, signal.SIGCHLD, signal.SIGSTOP, signal.SIGTERM, signal.SIGKILL):
        tried("signal" if pid == 1 else f"signal {number} {pid}", os.kill, pid, number)
print([one for one in reached if one != "signal"], flush=True)  # that process 1 does not get
"""
ON_THE_FIRST_PROCESS = """
import os, resource, signal
for kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_CPU):
    try:
        resource.prlimit(1, kind, (0, 0))
    except OSError:
        pass
for number in range(1, 65):
    try:
        os.kill(1, number)
    except OSError:
        pass
raise SystemExit(7)
"""
FOLDERS_WITHOUT_RIGHTS = """
import os
os.makedirs("out/below")
open("out/a", "w").write("1")
open("out/below/b", "w").write("2")
open("plain", "w").write("3")
for path, mode in {modes}.items():
    os.chmod(path, mode)
"""
NESTED = """
import os
print(os.getcwd(), flush=True)
for _ in range(3000):
    os.mkdir("d")
    os.chdir("d")
"""
MANY_FILES = """
import os
print(os.getcwd(), flush=True)
os.makedirs("a/b")
for number in range(3000):
    open(f"a/b/{number}", "w").close()
os.chmod("a/b", 0o000)
os.chmod("a", 0o000)
"""
IN_MANY = """
import mmap, os, socket, sys, time
held = []
def fill():
{body}
for _ in range(20):
    if os.fork() == 0:
        try:
            fill()
        except OSError as error:
            print(type(error).__name__, error.errno, file=sys.stderr, flush=True)
            os._exit(1)
        time.sleep(50)
        os._exit(0)
failed = 0
for _ in range(20):
    failed += os.waitstatus_to_exitcode(os.wait()[1])
raise SystemExit(failed)
"""
SHARED = """
    area = mmap.mmap(-1, 32 << 20)
    area.write(bytes(32 << 20))
    held.append(area)
"""
SHARED_ZEROS = """
    device = os.open("/dev/zero", os.O_RDWR)
    area = mmap.mmap(device, 32 << 20)
    area.write(bytes(32 << 20))
    held.append(area)
"""
UNIX_SOCKETS = """
    for _ in range(25):
        pair = socket.socketpair()
        held.append(pair)
        for end in pair:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
            end.setblocking(False)
            try:
                while True:
                    end.send(bytes(1 << 16))
            except BlockingIOError:
                pass
"""
SOCKETS_BY_ODD_NAMES = """
import socket, time
held = []
for name in ("\\0a\\nb", "\\0a\\n0: 0 0 0 0002 01 1 b\\n\\n", "a\\r\\n: "):
    held.append(socket.socket(socket.AF_UNIX))
    held[-1].bind(name)
time.sleep(0.3)
raise SystemExit(7)
"""
ATTRIBUTES = """
import os
open("a", "w").close()
held = 0
try:
    for number in range(4000):
        os.setxattr("a", f"user.{number}", bytes(60000))
        held += 60000
except OSError:
    pass
print(held)
"""
INOTIFY = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
found = [getattr(libc, "inotify_init")(), libc.inotify_init1(0)]
print(found, os.strerror(ctypes.get_errno()))
"""
ONE_AFTER_ANOTHER = """
import os, resource, time
for _ in range(60):
    if os.fork() == 0:
        while time.process_time() < 0.2:
            pass
        os._exit(0)
    os.wait()
"""


@pytest.fixture(autouse=True)
def _next_run_works(sandbox: Sandbox) -> Iterator[None]:
    """After every attack the next runs work, in a folder of their own."""
    yield
    for _ in range(2):
        after = sandbox.run_python("import os; print(os.listdir('.'))")
        assert (after.status, after.stdout.text) == (Status.OK, "[]\n")


def test_the_supervisor_is_out_of_reach(sandbox: Sandbox) -> None:
    """No limit, priority or signal of anybody else's process can be set, where there is another."""
    if sandbox.find_tier() == "unisolated" and os.geteuid() != 0:
        pytest.skip("where nothing isolates, the code may do what its starter may")
    source = "open('left', 'w').write('1')\n" + ON_THE_SUPERVISOR + "raise SystemExit(7)"
    result = sandbox.run_python(source, collect=["left"])
    assert (result.status, result.exit_status) == (Status.NONZERO, 7)
    assert result.stdout.text == "[]\n"
    assert result.files == {"left": b"1"}


def test_no_signal_ends_the_first_process_of_the_namespace(sandbox: Sandbox) -> None:
    result = sandbox.run_python(ON_THE_FIRST_PROCESS)
    assert (result.status, result.exit_status) == (Status.NONZERO, 7)


COMMON_USER = """
import sys, types
for name, place in zip(("turnwise", "turnwise_sandbox"), sys.argv[2:4]):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [place]
from turnwise.errors import ConfigError
from turnwise_sandbox.sandbox import Sandbox
from turnwise.sandbox.settings import SandboxSettings
with Sandbox(SandboxSettings(tier=sys.argv[1], warm=0)) as sandbox:
    try:
        sandbox.find_tier()
    except ConfigError as error:
        sys.exit(str(error))
    for source in sys.argv[4:]:
        result = sandbox.run_python(source, collect=["left"])
        print(result.status, result.exit_status, list(result.files), result.limited_by)
"""


def test_where_a_common_user_started_it(sandbox: Sandbox) -> None:
    """The code and its supervisor are the same user of the machine then."""
    if os.geteuid() != 0 or sandbox.find_tier() == "unisolated":
        pytest.skip("all tests are started by a common user, or nothing isolates")
    packages = [one.__path__[0] for one in (turnwise, turnwise_sandbox)]
    above = {parent for package in packages for parent in Path(package).parents}
    closed = [parent for parent in above if not parent.stat().st_mode & 0o001]
    if closed or not Path("/usr/bin/python3").exists():
        pytest.skip("other users have no interpreter, or cannot read the sources")
    left = "open('left', 'w').close()\n"
    sources = [left + ON_THE_SUPERVISOR + "raise SystemExit(7)", left + ON_THE_FIRST_PROCESS]
    done = subprocess.run(
        ["/usr/bin/python3", "-c", COMMON_USER, sandbox.find_tier(), *packages, *sources],
        capture_output=True,
        text=True,
        user=65533,
        group=65533,
        extra_groups=[],
        cwd="/",
        env={"PATH": os.environ["PATH"]},
    )
    if "no sandbox works here" in done.stderr:
        pytest.skip(done.stderr[-200:])
    assert done.returncode == 0, done.stderr
    for line in done.stdout.splitlines():
        assert line == "nonzero 7 ['left'] measured"
    assert len(done.stdout.splitlines()) == 2


@pytest.mark.parametrize(
    "modes", [*({"out/below": mode, "out": mode} for mode in (0o444, 0, 0o111)), {".": 0}], ids=str
)
def test_folders_without_rights(sandbox: Sandbox, modes: dict[str, int]) -> None:
    result = sandbox.run_python(FOLDERS_WITHOUT_RIGHTS.format(modes=modes), collect=["**"])
    assert result.status is Status.OK
    assert "." in modes or result.files["plain"] == b"3"


@pytest.mark.slow
@pytest.mark.parametrize("source", [NESTED, MANY_FILES], ids=["nested", "many"])
def test_folders_without_end(sandbox: Sandbox, limits: Limits, source: str) -> None:
    """The launcher removes them, and goes on meanwhile; the collection passes over them."""
    wide = dataclasses.replace(limits, files=4096, cpu_seconds=60.0)
    result = sandbox.run_python(source, collect=["**"], limits=wide)
    assert result.status is Status.OK, result.stderr.text
    folder = Path(result.stdout.text.strip())
    for _ in range(3):
        assert sandbox.run_python("print(1)").stdout.text == "1\n"
    until = time.monotonic() + 60
    while folder.parent != Path("/") and folder.parent.exists() and time.monotonic() < until:
        time.sleep(0.02)
    assert folder.parent == Path("/") or not folder.parent.exists()


@pytest.mark.long
@pytest.mark.parametrize("path", ["a" * 300, "a/" * 3000 + "a"], ids=["long", "deep"])
def test_files_that_cannot_be_written(sandbox: Sandbox, path: str) -> None:
    """An agent may have chosen their names: it is no failure of the machine."""
    result = sandbox.run_python("print(1)", files={path: b"1"})
    assert (result.status, result.exit_status) == (Status.NONZERO, None)
    assert result.error.startswith("its files cannot be written: ")


def test_more_files_than_there_may_be(sandbox: Sandbox, limits: Limits) -> None:
    if sandbox.find_tier() == "unisolated":
        pytest.skip("unisolated does not limit the number of files")
    files = {f"{number}": b"" for number in range(2 * limits.files)}
    result = sandbox.run_python("print(1)", files=files)
    assert (result.status, result.exit_status) == (Status.NONZERO, None)
    assert "there may be" in result.error


@pytest.mark.long
@pytest.mark.parametrize("body", [SHARED, SHARED_ZEROS], ids=["anonymous", "by a device"])
def test_memory_shared_without_a_file(sandbox: Sandbox, limits: Limits, body: str) -> None:
    wide = dataclasses.replace(limits, cpu_seconds=60.0)
    result = sandbox.run_python(IN_MANY.format(body=body), limits=wide)
    if sandbox.find_tier() == "unisolated":
        assert result.status is Status.OUT_OF_MEMORY
        return
    assert (result.status, result.exit_status) == (Status.NONZERO, 20)
    assert body == SHARED_ZEROS or "PermissionError 1\n" in result.stderr.text
    assert result.peak_memory < 4 * limits.memory


def test_memory_in_sockets(sandbox: Sandbox, limits: Limits) -> None:
    """Where buffers cannot be told from those of others, the result says so."""
    if sandbox.find_tier() == "unisolated":
        assert sandbox.run_python("").limited_by == "rlimits"
        return
    wide = dataclasses.replace(limits, cpu_seconds=60.0)
    result = sandbox.run_python(IN_MANY.format(body=UNIX_SOCKETS), limits=wide)
    assert result.limited_by == "measured"
    assert result.status is Status.OUT_OF_MEMORY
    assert result.peak_memory < 4 * limits.memory


def test_a_few_sockets_are_no_matter_and_zeros_can_be_read(sandbox: Sandbox) -> None:
    source = (
        "import asyncio\nprint(asyncio.run(asyncio.sleep(0.2, open('/dev/zero', 'rb').read(3))))"
    )
    assert sandbox.run_python(source).stdout.text == "b'\\x00\\x00\\x00'\n"


@pytest.mark.long
def test_names_of_sockets_are_no_lines_of_the_kernels_table(sandbox: Sandbox) -> None:
    result = sandbox.run_python(SOCKETS_BY_ODD_NAMES)
    assert (result.status, result.exit_status) == (Status.NONZERO, 7), result.error


def test_memory_in_attributes_of_files(sandbox: Sandbox, limits: Limits) -> None:
    """They are counted as files are: what they hold is an entry of some KiB each."""
    if sandbox.find_tier() == "unisolated":
        pytest.skip("unisolated writes to the machine's own file system")
    wide = dataclasses.replace(limits, cpu_seconds=60.0)
    result = sandbox.run_python(ATTRIBUTES, limits=wide)
    if result.status is Status.OK:  # a kernel whose files in memory have no such attributes
        assert result.stdout.text == "0\n"
    else:
        assert result.status is Status.OUT_OF_MEMORY


@pytest.mark.long
def test_processor_time_in_one_child_after_another(sandbox: Sandbox) -> None:
    assert sandbox.run_python(ONE_AFTER_ANOTHER).status is Status.CPU_LIMIT


def test_instances_of_inotify(sandbox: Sandbox) -> None:
    """None is to be had, and the machine has its own."""
    if sandbox.find_tier() == "unisolated":
        pytest.skip("nothing is refused where nothing isolates")
    libc = ctypes.CDLL(None, use_errno=True)
    result = sandbox.run_python(f"{INOTIFY}for _ in range(300): libc.inotify_init1(0)")
    assert result.stdout.text == "[-1, -1] Operation not permitted\n"
    descriptor = libc.inotify_init1(0)
    assert descriptor >= 0
    os.close(descriptor)
