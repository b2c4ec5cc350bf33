"""A thousand at once, honest and hostile: each has its own status, and nothing is left of any."""

import contextlib
import os
import resource
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from turnwise.errors import InfrastructureError
from turnwise.sandbox.result import Result, Status
from turnwise.sandbox.settings import TIERS
from turnwise_sandbox.sandbox import Sandbox

Maker = Callable[..., Sandbox]
Check = Callable[[Sandbox], bool]

DAEMON = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(60)"
MIXED = (
    ("print({number})", Status.OK),
    ("open('mark', 'x').write('1'); print({number})", Status.OK),
    ("raise SystemExit(3)", Status.NONZERO),
    ("import os; os.kill(os.getpid(), 9)", Status.SIGNAL),
    ("held = bytearray(10 << 30)", Status.OUT_OF_MEMORY),
    ("print('x' * (2 << 20))", Status.OUTPUT_LIMIT),
    (DAEMON, Status.OK),
    ("open('big', 'wb').write(bytes(9 << 20))", Status.NONZERO),
    ("import os; os.kill(1, 9); print(os.listdir('/proc/1/fd'))", Status.NONZERO),
    ("import socket; socket.create_connection(('1.1.1.1', 53), 1)", Status.NONZERO),
)


@contextmanager
def small_stacks() -> Iterator[None]:
    """A thousand threads of this process in little memory."""
    before = threading.stack_size(256 << 10)
    yield
    threading.stack_size(before)


def all_at_once(sandbox: Sandbox, count: int, run: Callable[[int], Result]) -> list[Result]:
    begin = threading.Barrier(count)

    def one(number: int) -> Result:
        begin.wait()
        return run(number)

    with small_stacks(), ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count)))


@pytest.mark.slow
def test_a_thousand_at_once(maker: Maker, nothing_left: Check) -> None:
    """More than there are places: they queue, and none is late or gets what is another's."""
    with maker("bubblewrap", concurrency=16) as sandbox:

        def run(number: int) -> Result:
            return sandbox.run_python(MIXED[number % len(MIXED)][0].format(number=number))

        results = all_at_once(sandbox, 1000, run)
        expected = [MIXED[number % len(MIXED)][1] for number in range(1000)]
        assert [result.status for result in results] == expected
        assert all(result.stdout.text == f"{n}\n" for n, result in list(enumerate(results))[::10])
        assert all(result.killed == 1 for result in results[6::10])
        assert nothing_left(sandbox)
        after = sandbox.run_python("import os; print(os.listdir('.'))")
        assert (after.status, after.stdout.text) == (Status.OK, "[]\n")


@pytest.mark.slow  # 4 GB of memory
def test_a_thousand_that_live_at_once(maker: Maker, nothing_left: Check) -> None:
    with maker("bubblewrap", concurrency=1000) as sandbox:
        source = "import time; time.sleep(5); print({})"
        results = all_at_once(sandbox, 1000, lambda n: sandbox.run_python(source.format(n)))
        assert [result.status for result in results] == [Status.OK] * 1000
        assert [result.stdout.text for result in results] == [f"{n}\n" for n in range(1000)]
        assert nothing_left(sandbox)


def descriptors(process: int) -> set[str]:
    """What a process keeps open for a fifth of a second, but for the folder of the one worker that
    may be kept warm."""
    kept = _links(process)
    for _ in range(20):
        time.sleep(0.01)
        kept &= _links(process)
    warm = {link for link in kept if "/turnwise-sandbox-" in link}
    assert len(warm) <= 1
    return kept - warm


def _links(process: int) -> set[str]:
    found = set()
    for one in Path(f"/proc/{process}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            found.add(f"{one.name} {os.readlink(one)}")
    return found


@pytest.mark.long
@pytest.mark.parametrize("tier", TIERS)
def test_runs_leave_nothing_on_the_host(maker: Maker, nothing_left: Check, tier: str) -> None:
    """No descriptor in this process or in the launcher, no file, no mount."""
    with maker(tier) as sandbox:
        launcher = sandbox._launch.process.pid
        place = sandbox.run_python("import os; print(os.getcwd())").stdout.text.strip()

        def state() -> list[object]:
            mounts = Path("/proc/self/mounts").read_text()
            return [len(os.listdir("/proc/self/fd")), descriptors(launcher), mounts]

        before = state()
        for source, _ in MIXED:
            sandbox.run_python(source.format(number=0))
        assert nothing_left(sandbox)
        assert state() == before
        assert not os.path.exists("/work/mark")
        assert tier != "unisolated" or not os.path.exists(place)


def test_too_few_descriptors_are_said(maker: Maker) -> None:
    with maker("bubblewrap") as sandbox:
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        used = len(os.listdir("/proc/self/fd"))
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + 3, limits[1]))
        try:
            with pytest.raises(InfrastructureError, match="ulimit -n"):
                sandbox.run_python("")
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert sandbox.run_python("print(1)").status is Status.OK
