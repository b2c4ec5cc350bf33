"""Kind docker: the same runs, sessions and statuses, in containers of a real or a posing Docker."""

import dataclasses
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sandbox_making import LIMITS, wait_for_none_below
from turnwise.errors import ConfigError
from turnwise.sandbox.result import Status
from turnwise.sandbox.settings import MEBIBYTE, SandboxSettings
from turnwise_sandbox import container, docker
from turnwise_sandbox.sandbox import Sandbox

FAKE = Path(__file__).parent / "fake_docker.py"
IMAGE = SandboxSettings().image
Make = Callable[..., Sandbox]


def fake(state: Path) -> str:
    """Path of a `docker` that keeps its state in a folder."""
    command = state / "docker"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} {FAKE} {state} "$@"\n')
    command.chmod(0o755)
    return str(command)


def settings(command: str, **changes: object) -> SandboxSettings:
    given: dict[str, object] = {"kind": "docker", "docker": command, "limits": LIMITS, "warm": 0}
    return SandboxSettings(**(given | changes))


def real() -> str:
    """Why there is no real Docker with the image here, or nothing."""
    if not shutil.which("docker"):
        return "there is no docker on the PATH"
    command = ["docker", "image", "inspect", "--format", "{{.Id}}", IMAGE]
    done = subprocess.run(command, capture_output=True, check=False)
    return "" if done.returncode == 0 else done.stderr.decode().strip()[-150:]


def check_posing() -> None:
    if os.geteuid() != 0 or not Path("/usr/bin/python3").exists():
        pytest.skip("the posing docker needs root, to change users, and /usr/bin/python3")
    if not shutil.which("bwrap"):
        pytest.skip("the posing docker needs bubblewrap")


@pytest.fixture
def state(tmp_path: Path) -> Path:
    check_posing()
    return tmp_path


@pytest.fixture(scope="module", params=["posing", "real"])
def sandbox(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Sandbox]:
    if request.param == "real":
        if reason := real():
            pytest.skip(reason)
        command = "docker"
    else:
        check_posing()
        command = fake(tmp_path_factory.mktemp("docker"))
    with Sandbox(settings(command)) as made:
        assert made.find_tier() == "docker"
        yield made


def test_a_run(sandbox: Sandbox) -> None:
    result = sandbox.run_python(
        "import os, sys; print(sys.stdin.read(), open('a/b').read(), os.getcwd(), os.getuid())",
        stdin=b"in",
        files={"a/b": b"file"},
    )
    assert (result.status, result.stdout.text) == (Status.OK, "in file /work 65534\n")
    assert (result.tier, result.limited_by) == ("docker", "docker")
    assert result.runtime.startswith(f"image {IMAGE} sha256:")


@pytest.mark.long
@pytest.mark.parametrize(
    ("source", "status"),
    [
        ("import os; os.kill(os.getpid(), 11)", Status.SIGNAL),
        ("held = bytearray(10 << 30)", Status.OUT_OF_MEMORY),
        ("while True: print('x' * 9999)", Status.OUTPUT_LIMIT),
        ("while True: pass", Status.CPU_LIMIT),
        ("import time; time.sleep(60)", Status.TIMEOUT),
        ("print('Killed'); raise SystemExit(137)", Status.NONZERO),
    ],
)
def test_status(sandbox: Sandbox, source: str, status: Status) -> None:
    short = dataclasses.replace(LIMITS, seconds=3.0)
    limits = short if status is Status.TIMEOUT else LIMITS
    assert sandbox.run_python(source, limits=limits).status is status


def test_a_program_and_its_files(sandbox: Sandbox) -> None:
    result = sandbox.run(
        ["sh", "-c", "echo $X > out; ln -s /etc/passwd link; env | grep -c FROM_THE_IMAGE; exit 4"],
        environment={"X": "x"},
        collect=["out", "link"],
    )
    assert (result.exit_status, result.stdout.text) == (4, "0\n")
    assert (result.files, set(result.refused)) == ({"out": b"x\n"}, {"link"})


def test_more_files_than_there_may_be(sandbox: Sandbox) -> None:
    """In all folders together; no engine is asked to limit their number, for podman cannot."""
    source = """
import time
for number in range(300):
    open(f"{('/work', '/tmp', '/dev/shm')[number % 3]}/{number}", "x")
time.sleep(9)
"""
    assert sandbox.run_python(source).status is Status.OUT_OF_MEMORY


def test_memory_that_the_kernel_refuses(sandbox: Sandbox) -> None:
    """It kills before any look: control groups of both versions say so."""
    if sandbox.settings.docker != "docker":
        pytest.skip("the posing docker does not limit memory")
    source = """
import mmap
for place in ("/work", "/tmp", "/dev/shm"):
    open(f"{place}/big", "wb").write(bytes(60 << 20))
mmap.mmap(-1, 90 << 20, flags=mmap.MAP_PRIVATE).madvise(23)  # MADV_POPULATE_WRITE
"""
    wide = dataclasses.replace(LIMITS, memory=160 * MEBIBYTE, disk=64 * MEBIBYTE)
    assert sandbox.run_python(source, limits=wide).status is Status.OUT_OF_MEMORY


def test_what_is_left_behind_is_killed(sandbox: Sandbox) -> None:
    result = sandbox.run(["sh", "-c", "setsid sleep 60 & sleep 0.2"])
    assert (result.status, result.killed) == (Status.OK, 1)


def test_the_processes_above_are_out_of_reach(sandbox: Sandbox) -> None:
    source = """
import os
for one in (1, os.getppid()):
    for attempt in (lambda: os.kill(one, 9), lambda: open(f"/proc/{one}/mem", "rb"),
                    lambda: os.listdir(f"/proc/{one}/fd")):
        try:
            attempt()
            print("done")
        except OSError as error:
            print(error.errno)
"""
    assert sandbox.run_python(source).stdout.text.split() == ["1", "13", "13"] * 2


def test_session(sandbox: Sandbox) -> None:
    with sandbox.session() as session:
        assert session.run("x = 1; print('e')").stdout.text == "e\n"
        assert session.run("x + 1").stdout.text == "2\n"
        assert session.run("1 / 0").error == "ZeroDivisionError"


@pytest.mark.long
def test_ready_ones_and_none_left(state: Path) -> None:
    with Sandbox(settings(fake(state), warm=2)) as sandbox:
        for _ in range(3):
            assert sandbox.run_python("open('x', 'x'); print(1)").stdout.text == "1\n"
        assert len(sandbox._ready) == 2
    assert not [pid for pid in pids_of(state) if os.path.exists(f"/proc/{pid}")]


def pids_of(state: Path) -> list[str]:
    return [path.read_text() for path in state.glob("*.pid")]


def test_options_of_a_container(state: Path) -> None:
    with Sandbox(settings(fake(state))) as sandbox:
        sandbox.run_python("")
    ((options, _),) = [json.loads(path.read_text()) for path in list(state.glob("*.json"))[:1]]
    assert {"--rm", "--read-only", "--interactive"} <= options.keys()
    expected = {
        "--network": ["none"],
        "--cap-drop": ["ALL"],
        "--security-opt": ["no-new-privileges"],
        "--pids-limit": [str(LIMITS.processes + 3)],
        "--memory": [str(LIMITS.memory + LIMITS.disk + docker.OWN_MEMORY)],
        "--log-driver": ["none"],
        "--pull": ["never"],
    }
    assert {name: options[name] for name in expected} == expected
    assert options["--memory-swap"] == options["--memory"]
    assert all(f"size={LIMITS.disk}" in one for one in options["--tmpfs"])


def test_nothing_outlives_the_host(state: Path) -> None:
    code = f"""
from turnwise_sandbox.sandbox import Sandbox
from turnwise.sandbox.settings import SandboxSettings
sandbox = Sandbox(SandboxSettings(kind="docker", docker={fake(state)!r}, warm=1))
sandbox.find_tier()
print("up", flush=True)
sandbox.run(["sh", "-c", "setsid sleep 60 & sleep 60"])
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as host:
        assert host.stdout.readline() == b"up\n"
        until = time.monotonic() + 60
        while len(pids_of(state)) < 2 and time.monotonic() < until:
            time.sleep(0.02)
        host.kill()
    assert len(pids_of(state)) > 1
    for pid in pids_of(state):
        assert not wait_for_none_below(int(pid))


@pytest.mark.long
def test_a_container_that_is_killed_is_no_doing_of_the_code(state: Path) -> None:
    with Sandbox(settings(fake(state))) as sandbox:
        assert sandbox.find_tier() == "docker"
        known = set(pids_of(state))
        with sandbox.session() as session:
            session.run("x = 1")
            (pid,) = set(pids_of(state)) - known
            os.kill(int(pid), 9)
            assert session.run("x").status is Status.INFRASTRUCTURE
            assert session.run("1").status is Status.OK


@pytest.mark.long
def test_a_container_that_does_not_end_is_removed(state: Path) -> None:
    """One that is stopped hears nothing, not even that its stdin was closed."""
    with Sandbox(settings(fake(state))) as sandbox:
        assert sandbox.find_tier() == "docker"
        known = set(pids_of(state))
        session = sandbox.open_session()
        session.run("x = 1")
        (pid,) = set(pids_of(state)) - known
        os.kill(int(pid), signal.SIGSTOP)
        session.close()
        assert not wait_for_none_below(int(pid))


@pytest.mark.long
def test_an_engine_that_goes_down(state: Path) -> None:
    with Sandbox(settings(fake(state))) as sandbox:
        assert sandbox.run_python("print(1)").status is Status.OK
        (state / "down").touch()
        result = sandbox.run_python("print(1)")
        assert result.status is Status.INFRASTRUCTURE
        assert "Cannot connect" in result.error
        (state / "down").unlink()
        assert sandbox.run_python("print(1)").status is Status.OK


def test_no_docker_no_engine_no_image(state: Path) -> None:
    with pytest.raises(ConfigError, match="no 'no-such-docker' on the PATH"):
        Sandbox(settings("no-such-docker")).find_tier()
    with pytest.raises(ConfigError, match=r"No such image: other.*docker pull other"):
        Sandbox(settings(fake(state), image="other")).find_tier()
    (state / "down").touch()
    with pytest.raises(ConfigError, match=r"Cannot connect[^`]*$"):
        Sandbox(settings(fake(state))).find_tier()
    (state / "down").unlink()


def test_output_goes_before_the_end_however_much_is_written_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The program goes on writing while the relay reads, and ends with something in the pipe."""
    (out, out_end), (error, error_end) = os.pipe(), os.pipe()
    (control, control_end), (channel, channel_end) = socket.socketpair(), socket.socketpair()
    frames: list[tuple[int, bytes]] = []
    os.write(out_end, b"0")
    control_end.sendall(b"started")

    def send(descriptor: int, stream: int, data: bytes) -> None:
        frames.append((stream, data))
        output = sum(one == container.STDOUT for one, _ in frames)
        if stream == container.STDOUT and output < 4:
            os.write(out_end, str(output).encode())
        elif stream == container.STDOUT and output == 4:
            os.write(out_end, b"the end")
            control_end.sendall(b"ended")
            for one in (out_end, error_end):
                os.close(one)
            control_end.close()
            channel_end.close()

    monkeypatch.setattr(container, "send", send)
    container._up(
        {
            container.STDOUT: out,
            container.STDERR: error,
            container.CHANNEL: channel.fileno(),
            container.CONTROL: control.fileno(),
        }
    )
    output = b"".join(data for stream, data in frames if stream == container.STDOUT)
    said = [(stream, data) for stream, data in frames]
    assert output == b"0123the end"
    assert said.index((container.STDOUT, b"the end")) < said.index((container.CONTROL, b"ended"))
    for one in (out, error):
        os.close(one)
    control.close()
    channel.close()
