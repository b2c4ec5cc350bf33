"""Resource bombs: each ends with its own status, leaves no process, and the next run is clean."""

import dataclasses
from collections.abc import Callable

import pytest

from turnwise.sandbox.result import Status
from turnwise.sandbox.settings import Limits
from turnwise_sandbox.sandbox import Sandbox

Check = Callable[[Sandbox], bool]

FORK_BOMB = """
import os
while True:
    try:
        os.fork()
    except OSError:
        pass
"""
BIG_CHILDREN = """
import os, time
for _ in range(8):
    if os.fork() == 0:
        held = bytearray(60 << 20)
        time.sleep(9)
time.sleep(9)
"""
DAEMON = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.close(1); os.close(2)
        time.sleep(60)
    os._exit(0)
os.wait()
print("parent done")
"""
STUBBORN = """
import signal, time
for number in range(1, 65):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
while True:
    pass
"""
FILL = """
import os
try:
    with open("big", "wb") as file:
        while True:
            file.write(bytes(1 << 20))
except OSError as error:
    print("refused", os.path.getsize("big") <= 9 << 20)
"""


@pytest.fixture(autouse=True)
def _clean_after(sandbox: Sandbox, nothing_left: Check) -> object:
    """After every bomb: nothing is left, and the next run works in an empty folder."""
    yield
    assert nothing_left(sandbox)
    after = sandbox.run_python("import os; print(os.listdir('.'))")
    assert (after.status, after.stdout.text) == (Status.OK, "[]\n")


@pytest.mark.long
def test_fork_bomb(sandbox: Sandbox) -> None:
    result = sandbox.run_python(FORK_BOMB)
    assert result.status is Status.CPU_LIMIT
    assert 10 < result.killed <= 24


def test_number_of_processes(sandbox: Sandbox, limits: Limits) -> None:
    source = """
import os, time
count = 0
try:
    for _ in range(100):
        if os.fork() == 0:
            time.sleep(20)
        count += 1
except OSError:
    print(count)
"""
    result = sandbox.run_python(source)
    assert result.status is Status.OK
    assert limits.processes - 4 <= int(result.stdout.text) <= limits.processes - 1


@pytest.mark.long
@pytest.mark.parametrize(
    ("source", "status"),
    [
        ("held = bytearray(10 << 30)", Status.OUT_OF_MEMORY),
        ("held = []\nwhile True: held.append(bytearray(8 << 20))", Status.OUT_OF_MEMORY),
        ("while True: pass", Status.CPU_LIMIT),
        (STUBBORN, Status.CPU_LIMIT),
    ],
)
def test_status(sandbox: Sandbox, source: str, status: Status) -> None:
    result = sandbox.run_python(source)
    assert (result.status, result.cpu_seconds < 3) == (status, True)


@pytest.mark.long
def test_big_allocations_of_many(sandbox: Sandbox, limits: Limits) -> None:
    wide = dataclasses.replace(limits, cpu_seconds=60.0)
    result = sandbox.run_python(BIG_CHILDREN, limits=wide)
    assert result.status is Status.OUT_OF_MEMORY
    assert result.peak_memory > limits.memory


def test_output_without_end(sandbox: Sandbox, limits: Limits) -> None:
    result = sandbox.run_python("while True: print('x' * (1 << 20))")
    assert result.status is Status.OUTPUT_LIMIT
    assert limits.output < result.stdout.count
    kept = len(result.stdout.head) + len(result.stdout.tail)
    assert kept == limits.shown
    assert f"{result.stdout.count - kept} bytes left out" in result.stdout.text


def test_output_of_another_stream_and_another_process(sandbox: Sandbox) -> None:
    result = sandbox.run(["sh", "-c", "yes >&2 & sleep 9"])
    assert result.status is Status.OUTPUT_LIMIT
    assert result.stderr.head.startswith(b"y\ny\n")


def test_large_output_below_the_limit_is_no_deadlock(sandbox: Sandbox) -> None:
    """A reader that waits for the end before it reads hangs at the size of a pipe."""
    result = sandbox.run_python("print('a' * 300_000); print('the end')")
    assert (result.status, result.stdout.count) == (Status.OK, 300_009)
    assert result.stdout.text.startswith("aaa")
    assert result.stdout.text.endswith("the end\n")


def test_disk(sandbox: Sandbox) -> None:
    result = sandbox.run_python(FILL)
    assert (result.status, result.stdout.text) == (Status.OK, "refused True\n")


def test_number_of_files(sandbox: Sandbox) -> None:
    if sandbox.find_tier() == "unisolated":
        pytest.skip("unisolated does not limit the number of files")
    source = "import time\nfor n in range(999): open(str(n), 'w').close()\ntime.sleep(50)"
    assert sandbox.run_python(source).status is Status.OUT_OF_MEMORY


@pytest.mark.long
def test_deadline(sandbox: Sandbox, limits: Limits) -> None:
    short = dataclasses.replace(limits, seconds=1.5)
    source = "print('begun', flush=True)\nopen('a', 'w').write('1')\nimport time; time.sleep(60)"
    result = sandbox.run_python(source, collect=["a"], limits=short)
    assert (result.status, result.stdout.text) == (Status.TIMEOUT, "begun\n")
    assert result.files == {"a": b"1"}  # gathered after the deadline
    assert 1.0 < result.seconds < 50  # told from the program's start, just after the deadline's


@pytest.mark.long
def test_deadline_of_what_ignores_sigterm(sandbox: Sandbox, limits: Limits) -> None:
    short = dataclasses.replace(limits, seconds=1.5)
    command = ["sh", "-c", "trap '' TERM HUP INT; sleep 60 & sleep 60"]
    assert sandbox.run(command, limits=short).status is Status.TIMEOUT


def test_daemon(sandbox: Sandbox) -> None:
    result = sandbox.run_python(DAEMON)
    assert (result.status, result.stdout.text) == (Status.OK, "parent done\n")
    assert result.killed == 1


def test_limits_of_each_process_and_what_kept_them_is_recorded(
    sandbox: Sandbox, limits: Limits
) -> None:
    """Of files, of core dumps, and of the stack: the same on every machine; without a limit of
    Python's own, deep recursion is a crash."""
    source = """
from resource import RLIMIT_CORE, RLIMIT_NOFILE, RLIMIT_STACK, getrlimit
print([getrlimit(name) for name in (RLIMIT_NOFILE, RLIMIT_CORE, RLIMIT_STACK)])
"""
    result = sandbox.run_python(source)
    expected = [(limits.open_files,) * 2, (0, 0), (8 << 20, 8 << 20)]
    assert result.stdout.text == f"{expected}\n"
    assert result.limited_by == ("rlimits" if sandbox.find_tier() == "unisolated" else "measured")
    assert result.runtime.startswith("python 3.")
    with sandbox.session() as session:
        cell = session.run("1")
        assert (cell.limited_by, cell.runtime) == (result.limited_by, result.runtime)
