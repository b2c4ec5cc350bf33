"""An agent in a sandbox: the gateway is what it can reach, its folder is what it leaves."""

import asyncio
import json
import os
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway_tests.asking import session
from gateway_tests.hashed_engine import TOKENIZER, HashedEngine
from gateway_tests.playing import ASKING, LIMITS, RIGHT, SCAFFOLD, group_of, limits
from tests.fakes import Capitals
from tests.processes import ended
from tests.sandboxes import working
from turnwise.config import RolloutConfig
from turnwise.errors import ConfigError, InfrastructureError
from turnwise.sandbox.settings import SandboxSettings
from turnwise.types import Observation, Outcome, Task, Trajectory, Verdict
from turnwise_gateway import forward
from turnwise_gateway.agent_episode import make_host
from turnwise_gateway.server import Gateway
from turnwise_gateway.settings import CommandAgent
from turnwise_sandbox.sandbox import Sandbox

pytest.importorskip("uvicorn")


class InFolder(Capitals):
    """Gives the agent a folder, and keeps what it has left there."""

    place: Path
    left: dict[str, str]

    async def reset(self, task: Task, seed: int) -> Observation:
        self.folder = self.place
        return await super().reset(task, seed)

    async def verify(self, trajectory: Trajectory) -> Verdict:
        for file in self.place.rglob("*"):
            self.left[str(file.relative_to(self.place))] = file.read_text()
        return await super().verify(trajectory)


PROGRAM = f"""{ASKING}
import socket
said = ask()
def tried(what):
    try:
        return str(what())
    except OSError as error:
        return type(error).__name__
"""


def play(
    folder: Path, lines: str, table: Any, limits: RolloutConfig = LIMITS
) -> tuple[Trajectory, dict[str, str]]:
    """One episode of a program of these lines, and the files that it has left."""
    (folder / "mine").mkdir()
    (folder / "mine" / "given").write_text("before")
    config = CommandAgent(command=("python3", "-c", PROGRAM + lines), sandbox=table)
    environment = InFolder()
    environment.place, environment.left = folder / "mine", {}
    host = make_host(config, SCAFFOLD, TOKENIZER)
    group = group_of(host, HashedEngine([RIGHT]), environment, limits)
    return group.trajectories[0], environment.left


@pytest.fixture
def isolating() -> Iterator[None]:
    """There is bubblewrap; nothing is left of the gateway's folders."""
    with Sandbox(SandboxSettings(tier="bubblewrap", warm=0)) as sandbox:
        working(sandbox)
    before = set(Path("/tmp").glob("turnwise-gateway-*"))
    yield
    assert set(Path("/tmp").glob("turnwise-gateway-*")) == before


@pytest.mark.long
@pytest.mark.usefixtures("isolating")
def test_it_reaches_the_gateway_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_SECRET", "of the machine")
    (tmp_path / "secret").write_text("of the machine")
    other = socket.create_server(("127.0.0.1", 0))
    lines = f"""
open("said", "w").write(said)
open("given", "a").write(" and after")
os.symlink("/etc/passwd", "link")
found = {{
    "file": tried(lambda: open({str(tmp_path / "secret")!r}).read()),
    "network": tried(lambda: socket.create_connection(("192.0.2.1", 80), 2)),
    "others": tried(lambda: socket.create_connection(("127.0.0.1", {other.getsockname()[1]}), 2)),
    "variable": os.environ.get("A_SECRET", "none"),
    "user": str(os.getuid()),
}}
open("found", "w").write(json.dumps(found))
"""
    with other:
        played, left = play(tmp_path, lines, "bubblewrap")
    assert played.outcome is Outcome.SUCCESS, played.problem
    assert set(left) == {"given", "said", "found"}
    assert (left["said"], left["given"]) == ("Paris", "before and after")
    found = json.loads(left["found"])
    assert found.pop("user") != "0"
    assert found == {
        "file": "FileNotFoundError",
        "network": "OSError",
        "others": "ConnectionRefusedError",
        "variable": "none",
    }


@pytest.mark.long
@pytest.mark.usefixtures("isolating")
def test_its_failure_is_quoted_and_its_files_are_kept(tmp_path: Path) -> None:
    table = {"limits": {"seconds": 30.0}}
    played, left = play(tmp_path, "open('more', 'w'); raise SystemExit('no idea')", table)
    assert played.outcome is Outcome.AGENT_ABORT
    assert played.problem == "python3 ended with code 1: no idea"
    assert set(left) == {"given", "more"}


@pytest.mark.long
@pytest.mark.usefixtures("isolating")
def test_one_that_hangs_is_ended_with_all_that_it_has_started(tmp_path: Path) -> None:
    before = set(_processes())
    begun = time.monotonic()
    lines = "open('more', 'w'); os.system('setsid sleep 71 & sleep 71')"
    played, left = play(tmp_path, lines, True, limits(max_seconds=3.0))
    assert played.outcome is Outcome.TRUNCATED_TIME
    assert time.monotonic() - begun < 30
    assert left == {"given": "before"}
    sleeping = [one for one in _processes() if one not in before]
    assert not sleeping or ended(sleeping)


def _processes() -> list[int]:
    """Those that sleep for as long as none but this test's do."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            line = Path(f"/proc/{name}/cmdline").read_bytes()
        except OSError:
            continue
        if line == b"sleep\x0071\x00":
            found.append(int(name))
    return found


async def test_a_folder_in_which_no_socket_can_be_is_named_and_nothing_is_left_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / ("x" * 90)
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    with pytest.raises(InfrastructureError, match="x: AF_UNIX path too long: let TMPDIR name"):
        await Gateway(sandboxed=True).open(session())
    assert not list(place.iterdir())


RESET = """
import os, socket, struct, time
host, _, port = os.environ["ADDRESS"].removeprefix("http://").partition(":")
with socket.create_connection((host, int(port))) as connection:
    connection.sendall(b"asked")
    while not os.path.exists(os.environ["HEARD"]):
        time.sleep(0.05)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
while not os.path.exists(os.environ["ENDED"]):
    time.sleep(0.05)
"""


async def test_the_gateway_hears_of_a_connection_that_the_agent_resets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ADDRESS", forward.PLACE)
    monkeypatch.setenv("HEARD", str(tmp_path / "heard"))
    monkeypatch.setenv("ENDED", str(tmp_path / "ended"))
    heard: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await reader.readexactly(5)
        (tmp_path / "heard").touch()  # a reset before that may take what was sent with it
        heard.set_result(asked + await reader.read())
        writer.close()

    place = str(tmp_path / "gateway")
    async with await asyncio.start_unix_server(serve, place), asyncio.timeout(30):
        command = [forward.__file__, place, sys.executable, "-c", RESET]
        forwarding = await asyncio.create_subprocess_exec(sys.executable, *command)
        try:
            assert await heard == b"asked"
        finally:
            (tmp_path / "ended").touch()  # the agent ends
        assert await forwarding.wait() == 0


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"kind": "docker"}, "leave kind out for a sandbox of this machine"),
        ({"tier": "unisolated"}, "leave agent.sandbox out"),
        ({"tiers": "auto"}, "sandbox.tier"),
        ("bubblewarp", "it is one of|Input should|bubblewrap"),
    ],
)
def test_what_cannot_be_is_refused(table: Any, message: str) -> None:
    config = CommandAgent(command=(sys.executable,), sandbox=table)
    with pytest.raises(ConfigError, match=message):
        make_host(config, SCAFFOLD, TOKENIZER)
