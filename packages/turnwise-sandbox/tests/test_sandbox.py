"""Runs, sessions, the ready ones, many at once, and what happens when a part of it dies."""

import contextlib
import dataclasses
import gc
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sandbox_making import interpreter, settings_for, wait_for_none_below
from turnwise.errors import ConfigError, InfrastructureError
from turnwise.sandbox.result import Output, Result, Status
from turnwise.sandbox.settings import TIERS, Limits, SandboxSettings
from turnwise_sandbox import launch, unisolated
from turnwise_sandbox.launcher import FIRST_USER, USERS
from turnwise_sandbox.runs import run_job
from turnwise_sandbox.sandbox import Sandbox
from turnwise_sandbox.worker import Job, Worker

Maker = Callable[..., Sandbox]


def test_a_run(sandbox: Sandbox, limits: Limits) -> None:
    source = "import sys; print(sys.stdin.read().upper()); print(sys.argv, file=sys.stderr)"
    result = sandbox.run_python(source, stdin="grüße".encode())
    assert (result.status, result.exit_status, result.signal) == (Status.OK, 0, None)
    assert (result.stdout.text, result.stderr.text) == ("GRÜSSE\n", "['<code>']\n")
    assert (result.tier, result.limits) == (sandbox.find_tier(), limits)
    assert 0 < result.seconds < limits.seconds
    assert result.peak_memory > 1 << 20
    assert result.checked() is result


@pytest.mark.parametrize(
    ("source", "status", "exit_status", "number"),
    [
        ("raise SystemExit", Status.OK, 0, None),
        ("raise SystemExit(3)", Status.NONZERO, 3, None),
        ("raise SystemExit('bad')", Status.NONZERO, 1, None),
        ("1 / 0", Status.NONZERO, 1, None),
        ("def broken(:", Status.NONZERO, 1, None),
        ("import os; os._exit(0)", Status.OK, 0, None),
        ("import os; os.kill(os.getpid(), 9)", Status.SIGNAL, None, 9),
        ("import ctypes; ctypes.string_at(0)", Status.SIGNAL, None, 11),
        ("print('Killed'); raise SystemExit(137)", Status.NONZERO, 137, None),
        ("import os; os.close(1); os.close(2)", Status.OK, 0, None),
        ("import atexit; atexit.register(print, 'x')", Status.OK, 0, None),
    ],
)
def test_status(
    sandbox: Sandbox, source: str, status: Status, exit_status: int | None, number: int | None
) -> None:
    result = sandbox.run_python(source)
    assert (result.status, result.exit_status, result.signal) == (status, exit_status, number)


def test_traceback_is_of_the_code_alone(sandbox: Sandbox) -> None:
    result = sandbox.run_python("def inner():\n    return 1 / 0\n\ninner()\n")
    lines = result.stderr.text.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-1] == "ZeroDivisionError: division by zero"
    assert [line for line in lines if "File" in line] == [
        '  File "<code>", line 4, in <module>',
        '  File "<code>", line 2, in inner',
    ]
    assert "    return 1 / 0" in lines


def test_threads_and_exit_functions_are_waited_for(sandbox: Sandbox) -> None:
    source = """
import atexit, threading, time
atexit.register(print, "exit")
threading.Thread(target=lambda: (time.sleep(0.1), print("thread"))).start()
print("main")
"""
    assert sandbox.run_python(source).stdout.text == "main\nthread\nexit\n"


def test_a_program(sandbox: Sandbox) -> None:
    result = sandbox.run(
        ["sh", "-c", "cat; echo $X; cat a/b.txt; exit 5"],
        stdin=b"in\n",
        environment={"X": "x"},
        files={"a/b.txt": b"file"},
    )
    assert (result.status, result.exit_status) == (Status.NONZERO, 5)
    assert result.stdout.text == "in\nx\nfile"


def test_a_program_that_is_not_there(sandbox: Sandbox) -> None:
    result = sandbox.run(["no-such-program"])
    assert (result.status, result.exit_status) == (Status.NONZERO, 127)
    assert "no-such-program" in result.stderr.text
    assert sandbox.run(["/usr"]).exit_status == 126


def test_files_in_and_out(sandbox: Sandbox) -> None:
    source = """
import os
print(open("given/data.txt").read())
os.makedirs("out/deep")
open("out/deep/one.bin", "wb").write(bytes(range(256)))
open("out/two.txt", "w").write("two")
open("other.txt", "w").write("not asked for")
"""
    result = sandbox.run_python(source, files={"given/data.txt": b"hello"}, collect=["out/**"])
    assert result.stdout.text == "hello\n"
    assert result.files == {"out/deep/one.bin": bytes(range(256)), "out/two.txt": b"two"}
    assert result.refused == {}


def test_artefacts_that_are_traps(sandbox: Sandbox, limits: Limits) -> None:
    source = """
import os
os.symlink("/etc/passwd", "link.txt")
os.symlink("/", "root")
os.mkfifo("pipe.txt")
open("twice.txt", "w").write("x")
os.link("twice.txt", "again.txt")
open("conftest.py", "w").write("x")
os.mkdir("__pycache__"); open("__pycache__/a.txt", "w").write("x")
open("secret.txt", "w").write("x"); os.chmod("secret.txt", 0)
open("good.txt", "w").write("x")
open(b"\\xff.txt", "w").write("x")
"""
    result = sandbox.run_python(source, collect=["*", "root/**", "__pycache__/*"])
    assert result.status is Status.OK, result.stderr.text
    assert set(result.files) <= {"good.txt", "secret.txt"}  # root's supervisor can read the latter
    assert "good.txt" in result.files
    refused = {"link.txt", "root", "pipe.txt", "twice.txt", "again.txt", "conftest.py"}
    assert refused | {"__pycache__/a.txt"} <= set(result.refused)
    assert result.refused["link.txt"] == result.refused["pipe.txt"] == "not a regular file"


def test_the_work_folder_cannot_be_exchanged(sandbox: Sandbox) -> None:
    if sandbox.find_tier() == "unisolated" and os.geteuid() != 0:
        pytest.skip("where nothing isolates, the code may do what its starter may")
    source = """
import os
here = os.getcwd()
try:
    os.rename(here, here + "-moved"); os.symlink("/etc", here)
except OSError:
    print("refused")
"""
    result = sandbox.run_python(source, collect=["passwd"])
    assert (result.stdout.text, result.files) == ("refused\n", {})


@pytest.mark.parametrize("path", ["/etc/x", "../x", "a/../../x", "", "a//b", "."])
def test_given_paths_stay_inside(sandbox: Sandbox, path: str) -> None:
    with pytest.raises(ConfigError, match="plain path"):
        sandbox.run_python("", files={path: b""})


def test_same_code_same_output(sandbox: Sandbox) -> None:
    source = "import os, time; print(hash('a'), {*'abc'}, time.tzname, sorted(os.environ))"
    (output,) = {sandbox.run_python(source).stdout.text for _ in range(3)}
    python = sandbox._launch.interpreter
    by_program = sandbox.run([python, "-S", "-c", "print(hash('a'))"]).stdout.text
    assert output.split()[0] == by_program.strip()


def test_packages_can_be_imported_and_not_written(maker: Maker, tmp_path: Path) -> None:
    """The folder lies below /tmp, where the sandbox mounts a file system of its own."""
    tmp_path.chmod(0o755)
    (tmp_path / "given_package.py").write_text("answer = 42")
    (tmp_path / "given_package.py").chmod(0o666)
    with maker("bubblewrap", packages=(str(tmp_path),)) as sandbox:
        source = "import given_package as one; print(one.answer); open(one.__file__, 'a')"
        result = sandbox.run_python(source)
    assert result.stdout.text == "42\n"
    assert "Read-only file system" in result.stderr.text


def test_code_cannot_see_the_code_that_runs_it(sandbox: Sandbox) -> None:
    source = "import sys; print([n for n in sys.modules if 'turnwise' in n], dir())"
    assert sandbox.run_python(source).stdout.text.startswith("[] ")


# Sessions


def test_session(sandbox: Sandbox) -> None:
    with sandbox.session(files={"data.txt": b"7"}) as session:
        assert session.run("x = int(open('data.txt').read())").stdout.text == ""
        assert session.run("y = x + 1\ny").stdout.text == "8\n"
        failed = session.run("print('before')\n1 / 0")
        assert (failed.status, failed.error) == (Status.NONZERO, "ZeroDivisionError")
        assert failed.stdout.text == "before\n"
        assert '"<cell 3>", line 2' in failed.stderr.text
        assert session.run("def f(: pass").error == "SyntaxError"
        assert session.run("x, _").stdout.text == "(7, 8)\n"
        assert session.run("import sys; print('e', file=sys.stderr)").stderr.text == "e\n"
        assert not session.lost


@pytest.mark.long
def test_session_loses_its_state_at_a_limit_and_says_so(sandbox: Sandbox, limits: Limits) -> None:
    short = dataclasses.replace(limits, seconds=2.0)
    with sandbox.session(limits=short) as session:
        session.run("x = 1")
        assert session.run("import time; time.sleep(60)").status is Status.TIMEOUT
        assert session.lost
        after = session.run("x")
        assert (after.error, session.lost) == ("NameError", False)


def test_ways_in_which_a_cell_ends_the_session(sandbox: Sandbox) -> None:
    with sandbox.session() as session:
        for source, status in (
            ("import sys; sys.exit(3)", Status.NONZERO),
            ("import os; os._exit(0)", Status.OK),
            ("import os; os.kill(os.getpid(), 9)", Status.SIGNAL),
            ("while True: print('x' * 9999)", Status.OUTPUT_LIMIT),
            ("import os; os.close(3)", Status.NONZERO),
        ):
            assert session.run(source).status is status, source
            assert session.lost


def test_memory_error_in_a_cell_keeps_the_session(sandbox: Sandbox) -> None:
    with sandbox.session() as session:
        session.run("x = 1")
        assert session.run("bytearray(10 << 30)").status is Status.OUT_OF_MEMORY
        assert session.run("x").stdout.text == "1\n"


def test_a_cell_cannot_answer_for_the_next_one(sandbox: Sandbox) -> None:
    with sandbox.session() as session:
        session.run(
            'import os; os.write(3, b\'{"error": "", "token": "0"}\\n\' * 9 + b\'x\\n[]\\n\')'
        )
        assert session.run("import time; time.sleep(0.2); print('late')").stdout.text == "late\n"


def test_a_session_that_is_closed(maker: Maker, nothing_left: Callable[[Sandbox], bool]) -> None:
    with maker("bubblewrap") as sandbox, sandbox.session() as session:
        started = session.run("import subprocess; subprocess.Popen(['sleep', '60']); None")
        assert started.status is Status.OK, started
        session.close()
        assert nothing_left(sandbox)
        with pytest.raises(ValueError, match="closed"):
            session.run("1")


@pytest.mark.parametrize("tier", TIERS)
def test_sandboxes_that_root_started_have_a_user_each(maker: Maker, tier: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("users are for sandboxes that root started")
    source = "import os; print(os.getuid())"
    with maker(tier) as sandbox, sandbox.session() as one, sandbox.session() as other:
        found = {int(each.run(source).stdout.text) for each in (one, other)}
        assert len(found) == 2
        assert found <= set(range(FIRST_USER, FIRST_USER + USERS))


# Many, and ready ones


@pytest.mark.long
def test_no_more_at_once_than_there_are_places(maker: Maker) -> None:
    with maker("bubblewrap", concurrency=1) as sandbox:
        begin = threading.Barrier(3)

        def one(_: int) -> tuple[list[float], float]:
            begin.wait()
            result = sandbox.run_python(
                "import time; now = time.monotonic\nprint(now())\ntime.sleep(0.3); print(now())"
            )
            return [float(line) for line in result.stdout.text.split()], result.queued

        with ThreadPoolExecutor(3) as pool:
            found = sorted(pool.map(one, range(3)))
    (first, second, third), queued = zip(*found, strict=True)
    assert first[1] <= second[0] < second[1] <= third[0]
    assert queued[2] > queued[0]


def test_idle_sessions_take_no_place(maker: Maker) -> None:
    with maker("bubblewrap", concurrency=1) as sandbox:
        sessions = [sandbox.open_session() for _ in range(5)]
        for number, session in enumerate(sessions):
            session.run(f"x = {number}")
        for number, session in enumerate(sessions):
            assert session.run("x").stdout.text == f"{number}\n"
            session.close()


@pytest.mark.long
@pytest.mark.parametrize("tier", TIERS)
def test_ready_ones_are_clean_and_used_once(maker: Maker, tier: str) -> None:
    with maker(tier, warm=2) as sandbox:
        for _ in range(5):
            result = sandbox.run_python("open('x', 'x'); import sys; sys.me = 1; print(1)")
            assert result.stdout.text == "1\n"
        assert len(sandbox._ready) == 2
        other = dataclasses.replace(sandbox.settings.limits, open_files=50)
        source = "import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
        assert sandbox.run_python(source, limits=other).stdout.text == "50\n"


@pytest.mark.long
@pytest.mark.parametrize("tier", TIERS)
def test_killed_while_they_start(
    maker: Maker, nothing_left: Callable[[Sandbox], bool], tier: str
) -> None:
    with maker(tier) as sandbox:
        for delay in (*[0.0] * 20, 0.001, 0.002, 0.004, 0.008, 0.016):
            worker = sandbox._new_worker(tier, sandbox.settings.limits)
            time.sleep(delay)
            worker.close()
        assert nothing_left(sandbox)


def test_close_ends_everything_as_forgetting_does_and_a_run_starts_it_again(maker: Maker) -> None:
    sandbox = maker("bubblewrap", warm=2)
    ended = []
    for _ in range(2):
        assert sandbox.run_python("print(1)").stdout.text == "1\n"
        ended.append(sandbox._launch.process)
        if len(ended) == 1:
            sandbox.close()
            sandbox.close()
    del sandbox
    gc.collect()
    assert [process.returncode for process in ended] == [0, 0]


# Parts that die

SLEEPING = Job(source="import time; time.sleep(60)")


def ended(worker: Worker, sandbox: Sandbox) -> Result:
    """The end of a run that has begun."""
    try:
        return run_job(worker, SLEEPING, sandbox.find_tier(), sandbox.settings.limits, 0.0)
    finally:
        worker.close()


def test_a_supervisor_that_dies_is_no_doing_of_the_code(maker: Maker) -> None:
    with maker("bubblewrap") as sandbox:
        launcher = sandbox._launch.process.pid
        worker = sandbox._begun(SLEEPING, sandbox.settings.limits)
        for child in Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split():
            with contextlib.suppress(ProcessLookupError):  # ended with the one before
                os.kill(int(child), signal.SIGKILL)
        result = ended(worker, sandbox)
        assert result.status is Status.INFRASTRUCTURE
        with pytest.raises(InfrastructureError, match="without a report"):
            result.checked()
        assert sandbox.run_python("print(1)").status is Status.OK


def test_code_that_kills_its_supervisor_where_nothing_isolates(
    maker: Maker, nothing_left: Callable[[Sandbox], bool]
) -> None:
    if os.geteuid() == 0:
        pytest.skip("root's supervisor has another user than the code")
    source = """
import os, time
if os.fork() == 0:
    os.setsid()
    time.sleep(60)
os.kill(os.getppid(), 9)
time.sleep(60)
"""
    with maker("unisolated") as sandbox:
        assert sandbox.run_python(source).status is Status.SIGNAL
        assert nothing_left(sandbox)


def test_a_work_folder_that_the_code_has_removed_is_gone(tmp_path: Path) -> None:
    """Without isolation code of a common user may remove it, and the folder around it."""
    assert unisolated.clean({"work": str(tmp_path / "removed" / "work")}, unisolated.AT_ONCE)


@pytest.mark.long
def test_a_launcher_that_dies_is_started_again(maker: Maker) -> None:
    with maker("bubblewrap", warm=1) as sandbox:
        sandbox.run_python("")
        launcher = sandbox._launch.process
        worker = sandbox._begun(SLEEPING, sandbox.settings.limits)
        launcher.kill()
        assert ended(worker, sandbox).status is Status.INFRASTRUCTURE
        launcher.wait(60)
        assert sandbox.run_python("print(1)").status is Status.OK


@pytest.mark.long
@pytest.mark.parametrize("tier", TIERS)
def test_nothing_outlives_the_host(maker: Maker, tier: str) -> None:
    maker(tier).close()
    code = f"""
from turnwise_sandbox.sandbox import Sandbox
from turnwise.sandbox.settings import SandboxSettings
python = {settings_for(tier).python!r}
sandbox = Sandbox(SandboxSettings({tier!r}, python=python, warm=1))
sandbox.find_tier()
print(sandbox._launch.process.pid, flush=True)
sandbox.run(["sh", "-c", "setsid sleep 60 & sleep 60"])
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as host:
        launcher = int(host.stdout.readline())
        time.sleep(0.5)
        host.kill()
    assert not wait_for_none_below(launcher)
    until = time.monotonic() + 60
    while os.path.exists(f"/proc/{launcher}") and time.monotonic() < until:
        time.sleep(0.02)
    assert not os.path.exists(f"/proc/{launcher}")


# Settings


def test_no_silent_step_down(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One warning, however many sandboxes; none where isolation is asked for, which is refused."""
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ConfigError, match=r"no sandbox works here \(bubblewrap: there is no bwrap"):
        Sandbox(SandboxSettings(tier="bubblewrap")).find_tier()
    for _ in range(2):
        with Sandbox(SandboxSettings(warm=0, python=interpreter())) as sandbox:
            assert sandbox.find_tier() == "unisolated"
            assert sandbox.run_python("print(1)").tier == "unisolated"
    (said,) = [record.getMessage() for record in caplog.records]
    assert "WITHOUT ISOLATION" in said
    assert "there is no bwrap on the PATH" in said


def test_a_bwrap_that_fails_is_quoted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "bwrap"
    program.write_text("#!/bin/sh\necho bwrap: No permissions to create a thing >&2; exit 1")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(ConfigError, match=r"bubblewrap: bwrap: No permissions to create a thing"):
        Sandbox(SandboxSettings(tier="bubblewrap")).find_tier()


def test_limits_and_settings_that_cannot_be() -> None:
    for name, value in (("seconds", 0), ("memory", 1024), ("cpu_seconds", math.nan), ("files", 3)):
        with pytest.raises(ConfigError, match=name):
            Limits(**{name: value})
    for changes in ({"tier": "docker"}, {"warm": -1}, {"concurrency": 0}, {"packages": ("a",)}):
        with pytest.raises(ConfigError):
            SandboxSettings(**changes)
    with pytest.raises(ConfigError, match="list of words"):
        Sandbox(settings_for("bubblewrap")).run("ls -l")


def test_text_for_a_model() -> None:
    output = Output(b"\x1b[31mred\x1b[0m\x00 \xff", b"end", 22)
    assert output.text == "red �\n[... 4 bytes left out ...]\nend"


def test_a_python_that_other_users_cannot_reach_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As that of root whose Python is in its home."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    assert "is no program" in launch.unavailable("bubblewrap", str(home / "python"))
    (home / "python").touch(mode=0o755)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    said = launch.unavailable("unisolated", str(home / "python"))
    assert "which may not enter" in said
    assert "set sandbox.python to one elsewhere" in said
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert launch.unavailable("unisolated", str(home / "python")) == ""
