"""Servers as processes: started, lost, ended with all that belongs to them, with a stand-in."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest

import real_vllm
from tests.fakes import byte_tokenizer, small_model
from tests.processes import ipv6
from turnwise.engines.base import Sampling
from turnwise.errors import ConfigError, InfrastructureError
from turnwise_vllm.make import make_vllm
from turnwise_vllm.process import ServerProcess, check_interpreter, environment
from turnwise_vllm.settings import StartedServers, VllmEngineConfig
from vllm_stand_in import alive, soon, stand_in, starts


@pytest.fixture
def python(tmp_path: Path) -> str:
    return stand_in(tmp_path)


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where each start is noted."""
    path = tmp_path / "notes.jsonl"
    monkeypatch.setenv("FAKE_VLLM_NOTES", str(path))
    return path


def drive(folder: Path, body: Any, **settings: Any) -> None:
    """Run `body(engine)` with an engine that starts servers; its answers are made up, so that
    whether they agree with the model is not looked at."""
    tokenizer = byte_tokenizer()
    given = {"max_sequences": 5, "parity_bound": 1e9, "start_seconds": 120, **settings}
    real_vllm.drive(folder, small_model(tokenizer), tokenizer, body, limit=64, **given)


@pytest.mark.long
def test_servers_are_started_restarted_and_ended(tmp_path: Path, python: str, notes: Path) -> None:
    async def body(engine: Any) -> None:
        await engine.load_weights({}, 0)
        first = starts(notes)
        assert len(first) == 2
        engine.open("one")
        before = await engine.generate([70, 71], Sampling(3, seed=1), session="one")
        await engine.load_weights({}, 1)
        for process, _ in first:
            os.kill(process, signal.SIGKILL)
        after = await engine.generate([70, 71], Sampling(3, seed=1), session="one")
        assert (before.tokens, before.version) == ([5, 5, 5], [0, 0, 0])
        assert (after.tokens, after.version) == ([5, 5, 5], [1, 1, 1])
        assert soon(lambda: len(starts(notes)) >= 3)

    drive(
        tmp_path / "run",
        body,
        colocated=True,
        python=python,
        replicas=2,
        devices=("0", "1"),
        arguments=("--gpu-memory-utilization", "0.5"),
    )
    found = starts(notes)
    assert soon(lambda: not any(alive(process) for process, _ in found))
    arguments = found[0][1]
    value = {name: arguments[index + 1] for index, name in enumerate(arguments[:-1])}
    assert value["--dtype"] == "float32"
    assert value["--max-model-len"] == "64"
    assert value["--max-num-seqs"] == "3"
    assert value["--logprobs-mode"] == "processed_logprobs"
    assert value["--gpu-memory-utilization"] == "0.5"
    assert "--enable-sleep-mode" in arguments
    restarted = [one[one.index("--model") + 1] for _, one in found[2:]]
    assert all("version-1" in folder for folder in restarted)
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [
        "server-0.log",
        "server-1.log",
    ]


def test_without_a_folder_nothing_is_left(python: str, notes: Path) -> None:
    folders = []

    async def main() -> None:
        tokenizer = byte_tokenizer()
        servers = StartedServers(python=python)
        config = VllmEngineConfig(name="vllm", servers=servers, parity_bound=1e9)
        engine = make_vllm(config, small_model(tokenizer), tokenizer, 64)
        await engine.load_weights({}, 0)
        arguments = starts(notes)[0][1]
        folders.append(Path(arguments[arguments.index("--model") + 1]).parent.parent)
        assert folders[0].is_dir()
        await engine.stop()

    asyncio.run(asyncio.wait_for(main(), 240))
    assert not folders[0].exists()


def test_a_server_that_ends_while_it_starts_says_why(
    tmp_path: Path, python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_VLLM", "dies")

    async def body(engine: Any) -> None:
        with pytest.raises(InfrastructureError, match=r"head size nobody can serve.*server-0\.log"):
            await engine.load_weights({}, 0)

    drive(tmp_path / "run", body, python=python)


@pytest.mark.long
def test_a_server_ends_with_its_owner_however_that_ends(
    tmp_path: Path, python: str, notes: Path
) -> None:
    code = (
        "import asyncio, sys, time; from pathlib import Path\n"
        "from turnwise_vllm.process import ServerProcess\n"
        "server = ServerProcess(sys.argv[1], [], {}, Path(sys.argv[2]))\n"
        "asyncio.run(server.start(Path('model')))\n"
        "time.sleep(100)\n"
    )
    log = str(tmp_path / "log")
    owner = subprocess.Popen([sys.executable, "-c", code, python, log])
    assert soon(lambda: starts(notes))
    process = starts(notes)[0][0]
    assert alive(process)
    owner.kill()
    owner.wait()
    assert soon(lambda: not alive(process))


@pytest.mark.parametrize("host", ["127.0.0.1", pytest.param("::1", marks=ipv6)])
async def test_a_server_ends_with_its_guard(
    tmp_path: Path, python: str, notes: Path, host: str
) -> None:
    """As Ray does, which kills the children of a process that it ends. To stop it before it was
    started, or twice, is nothing."""
    server = ServerProcess(python, [], {}, tmp_path / "log", host)
    await server.stop()
    await server.start(tmp_path)
    assert await server.running()
    assert httpx2.URL(server.url).host == host
    assert soon(lambda: starts(notes))
    server._process.kill()
    assert soon(lambda: not alive(starts(notes)[0][0]))
    await server.stop()
    await server.stop()
    assert not await server.running()


def test_an_interpreter_without_vllm_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"has no vLLM.*set engine\.servers\.python"):
        check_interpreter(sys.executable)
    with pytest.raises(ConfigError, match="cannot be run"):
        check_interpreter(str(tmp_path / "nothing"))


def test_servers_of_one_s_own_ask_for_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_API_KEY", "of other servers")
    assert "VLLM_API_KEY" not in environment(sys.executable)


def test_a_vllm_that_does_not_sample_from_token_ids_is_refused(tmp_path: Path, python: str) -> None:
    assert check_interpreter(python) == "vllm-fake 0.32"
    (tmp_path / "site" / "vllm" / "entrypoints" / "scale_out").rmdir()
    with pytest.raises(
        ConfigError, match=r"without /inference/v1/generate: install 0\.32 or later"
    ):
        check_interpreter(python)
