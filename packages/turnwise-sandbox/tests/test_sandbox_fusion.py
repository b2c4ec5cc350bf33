"""Kind sandbox_fusion, against a small service: it runs code, fails, is slow, talks nonsense."""

import base64
import json
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from turnwise.errors import ConfigError, InfrastructureError, NotSupportedError
from turnwise.sandbox.choice import make_sandbox
from turnwise.sandbox.result import Status
from turnwise.sandbox.settings import Limits, SandboxSettings
from turnwise_sandbox.sandbox_fusion import SandboxFusion

LIMITS = Limits(seconds=60.0, output=1 << 20, disk=1 << 20)
FINISHED = {"status": "Finished", "execution_time": 0.1, "return_code": 0}
Answer = Callable[[dict[str, Any]], Any]


def run_code(request: dict[str, Any]) -> dict[str, Any]:
    """What the service answers, as far as the protocol goes: no isolation, small outputs."""
    with tempfile.TemporaryDirectory() as folder:
        for path, text in request["files"].items():
            (Path(folder) / path).parent.mkdir(parents=True, exist_ok=True)
            (Path(folder) / path).write_bytes(base64.b64decode(text))
        interpreter = [sys.executable, "-S"] if request["language"] == "python" else ["bash"]
        try:
            done = subprocess.run(
                [*interpreter, "-c", request["code"]],
                input=request["stdin"].encode(),
                capture_output=True,
                timeout=request["run_timeout"],
                cwd=folder,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            run = {"status": "TimeLimitExceeded", "stdout": (error.stdout or b"").decode()}
            return {"status": "Failed", "message": "", "run_result": run}
        run = {"status": "Finished", "execution_time": 0.25, "return_code": done.returncode}
        run |= {"stdout": done.stdout.decode(), "stderr": done.stderr.decode()}
        files = {
            path: base64.b64encode((Path(folder) / path).read_bytes()).decode()
            for path in request["fetch_files"]
            if (Path(folder) / path).is_file()
        }
        status = "Success" if done.returncode == 0 else "Failed"
        return {"status": status, "message": "", "run_result": run, "files": files}


class Service(ThreadingHTTPServer):
    """`answer` makes the answer to a request: JSON, or bytes as they go out, or a status."""

    daemon_threads = True
    answer: Answer = staticmethod(run_code)
    requests: list[dict[str, Any]]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/base/"


class Handler(BaseHTTPRequestHandler):
    server: Service

    def do_POST(self) -> None:
        assert self.path == "/base/run_code"
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append(request)
        answer = self.server.answer(request)
        status = answer if isinstance(answer, int) else 200
        self.send_response(status)
        self.end_headers()
        try:
            for part in answer if isinstance(answer, Iterator) else [answer]:
                data = part if isinstance(part, bytes) else json.dumps(part).encode()
                self.wfile.write(data)
                self.wfile.flush()
        except OSError:
            return

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing."""


@pytest.fixture
def service() -> Iterator[Service]:
    with Service(("127.0.0.1", 0), Handler) as server:
        server.requests = []
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def at(url: str, **changes: Any) -> SandboxFusion:
    table = {"kind": "sandbox_fusion", "url": url, "answer_seconds": 60.0} | changes
    sandbox = make_sandbox(table, LIMITS)
    assert isinstance(sandbox, SandboxFusion)
    return sandbox


def test_a_run(service: Service) -> None:
    with at(service.url) as sandbox:
        result = sandbox.run_python(
            "import sys; print(sys.stdin.read(), open('a/b').read()); open('out', 'w').write('1')",
            stdin=b"in",
            files={"a/b": b"file"},
            collect=["out", "missing"],
        )
    assert (result.status, result.exit_status) == (Status.OK, 0), result
    assert (result.stdout.text, result.files) == ("in file\n", {"out": b"1"})
    assert (result.tier, result.limited_by) == ("sandbox_fusion", "service")
    assert (result.seconds, result.runtime) == (0.25, f"service {service.url}")
    (request,) = service.requests
    assert (request["language"], request["run_timeout"]) == ("python", 60.0)
    assert request["memory_limit_MB"] == 512


def test_a_program(service: Service) -> None:
    result = at(service.url).run(["sh", "-c", "echo $X 'a b'; exit 3"], environment={"X": "x y"})
    assert (result.status, result.exit_status) == (Status.NONZERO, 3)
    assert result.stdout.text == "x y a b\n"
    assert at(service.url).run(["no-such-program"]).exit_status == 127


@pytest.mark.long
@pytest.mark.parametrize(
    ("source", "status"),
    [
        ("raise SystemExit(3)", Status.NONZERO),
        ("import os; os.kill(os.getpid(), 9)", Status.SIGNAL),
        ("raise MemoryError", Status.OUT_OF_MEMORY),
        ("print('x' * 2_000_000)", Status.OUTPUT_LIMIT),
        ("print('a', flush=True); import time; time.sleep(9)", Status.TIMEOUT),
    ],
)
def test_status(service: Service, source: str, status: Status) -> None:
    seconds = 1.0 if status is Status.TIMEOUT else 60.0
    result = at(service.url, limits={"seconds": seconds}).run_python(source)
    assert result.status is status
    assert result.checked() is result


NONSENSE: dict[str, Any] = {
    "no JSON": b"<html>busy</html>",
    "JSON without end": b'{"status": ',
    "too deep": b"[" * 200_000,
    "no object": [1],
    "no status": {"run_result": FINISHED},
    "unknown status": {"status": "Fine", "run_result": FINISHED},
    "no result": {"status": "Success", "run_result": None},
    "its own failure": {"status": "SandboxError", "message": "no room", "run_result": FINISHED},
    "the run's failure": {"status": "Failed", "run_result": {"status": "Error", "stderr": "x"}},
    "no exit status": {"status": "Success", "run_result": FINISHED | {"return_code": None}},
    "exit status as text": {"status": "Success", "run_result": FINISHED | {"return_code": "0"}},
    "output that is a list": {"status": "Success", "run_result": FINISHED | {"stdout": []}},
    "a contradiction": {"status": "Success", "run_result": FINISHED | {"return_code": 1}},
    "files that are no files": {"status": "Success", "run_result": FINISHED, "files": [1]},
    "a file that is no base64": {"status": "Success", "run_result": FINISHED, "files": {"a": "?"}},
    "HTTP 500": 500,
    "HTTP 429": 429,
    "HTTP 404": 404,
    "nothing": b"",
}


@pytest.mark.parametrize("kind", NONSENSE)
def test_nonsense_is_not_graded(service: Service, kind: str) -> None:
    service.answer = lambda request: NONSENSE[kind]
    result = at(service.url).run_python("print(1)", collect=["a"])
    assert result.status is Status.INFRASTRUCTURE
    assert result.error.startswith(service.url)
    with pytest.raises(InfrastructureError, match="sandbox_fusion"):
        result.checked()
    assert len(service.requests) == 1  # nothing is run a second time


def test_too_long_an_answer(service: Service) -> None:
    service.answer = lambda request: (b" " * 1_000_000 for _ in range(20))
    assert "more than" in at(service.url).run_python("").error


def test_a_service_that_is_down() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    result = at(f"http://127.0.0.1:{port}").run_python("")
    assert result.status is Status.INFRASTRUCTURE
    assert "refused" in result.error


@pytest.mark.long
@pytest.mark.parametrize("silent", [True, False])
def test_a_service_that_is_slow(service: Service, silent: bool) -> None:
    """Silent, or with a byte now and then, which no timeout of a socket ever ends."""
    given_up = threading.Event()

    def drip(request: dict[str, Any]) -> Iterator[bytes]:
        while not given_up.wait(60 if silent else 0.05):
            yield b" "

    service.answer = drip
    sandbox = at(service.url, answer_seconds=0.2, limits={"seconds": 0.3})
    result = sandbox.run_python("")
    assert result.status is Status.INFRASTRUCTURE
    assert "answer in 0.5 s" in result.error
    given_up.set()


def test_places(service: Service) -> None:
    sandbox = at(service.url, concurrency=1)
    at_once = [0]

    def counted(request: dict[str, Any]) -> dict[str, Any]:
        at_once.append(at_once[-1] + 1)
        time.sleep(0.1)
        at_once.append(at_once[-1] - 1)
        return run_code(request)

    service.answer = counted
    with ThreadPoolExecutor(3) as pool:
        queued = list(pool.map(lambda _: sandbox.run_python("").queued, range(3)))
    assert at_once == [0, 1, 0, 1, 0, 1, 0]
    assert max(queued) > min(queued)


def test_files_that_may_not_be_passed_on(service: Service) -> None:
    files = {name: base64.b64encode(b"x" * 999).decode() for name in ("conftest.py", "big", "b")}
    files["big"] = base64.b64encode(bytes(2 << 20)).decode()
    service.answer = lambda request: {"status": "Success", "run_result": FINISHED, "files": files}
    result = at(service.url).run_python("", collect=["conftest.py", "big"])
    assert (result.files, set(result.refused)) == ({}, {"conftest.py", "big"})


def test_what_the_protocol_has_not() -> None:
    sandbox = at("http://127.0.0.1:1")
    with pytest.raises(NotSupportedError, match="no sessions"):
        sandbox.open_session()
    with pytest.raises(ConfigError, match="by name"):
        sandbox.run_python("", collect=["*.py"])
    with pytest.raises(ConfigError, match="environment variables"):
        sandbox.run_python("", environment={"A": "b"})
    with pytest.raises(ConfigError, match="UTF-8"):
        sandbox.run_python("", stdin=b"\xff")
    with pytest.raises(ConfigError, match="plain path"):
        sandbox.run_python("", files={"../a": b""})
    with pytest.raises(ConfigError, match="list of words"):
        sandbox.run("ls")


@pytest.mark.parametrize("url", ["", "127.0.0.1:8080", "http://", "http://a:b", "http://a/?b=1"])
def test_addresses_that_are_none(url: str) -> None:
    with pytest.raises(ConfigError, match="sandbox url"):
        SandboxFusion(SandboxSettings(kind="sandbox_fusion", url=url))
