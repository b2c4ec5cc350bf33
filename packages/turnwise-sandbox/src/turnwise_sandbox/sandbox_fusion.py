"""Running code at a service that speaks SandboxFusion's protocol: one HTTP request for each run.

    POST URL/run_code   {language, code, stdin, run_timeout, memory_limit_MB, files, fetch_files}
    answer              {status: Success | Failed | SandboxError,
                         run_result: {status: Finished | TimeLimitExceeded | Error, return_code,
                                      execution_time, stdout, stderr}, files}

(github.com/bytedance/SandboxFusion, sandbox/server/sandbox_api.py; files are base64.) Whatever the
service says of itself, and whatever it says that makes no sense, is status infrastructure: not
graded. No request is sent twice, since the code may have run.

What it is not: isolation that turnwise has seen. The service's own configuration decides on that,
and its default has none. Of the limits only `seconds` and `memory` are sent; `output` and `disk`
are applied to what comes back. There are no sessions, and files are gathered by name only.
"""

import base64
import contextlib
import http.client
import json
import shlex
import socket
import threading
import time
import urllib.parse
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pydantic import BaseModel, ValidationError

from turnwise.errors import ConfigError, NotSupportedError
from turnwise.sandbox.base import Session
from turnwise.sandbox.result import Result, Status
from turnwise.sandbox.settings import MEBIBYTE, Limits, SandboxSettings
from turnwise_sandbox import artefacts, protocol
from turnwise_sandbox.runs import JobSandbox, check_files, ended_without_memory
from turnwise_sandbox.worker import Capture, Job

_TIER = "sandbox_fusion"


class SandboxFusion(JobSandbox):
    """A service as a sandbox. Making one asks for nothing."""

    def __init__(self, settings: SandboxSettings) -> None:
        """Raises ConfigError for a malformed address."""
        self.settings = settings
        self._places = threading.BoundedSemaphore(settings.concurrency)
        self._url = urllib.parse.urlsplit(settings.url)
        if not _is_plain(self._url):
            raise ConfigError(f"sandbox url {settings.url!r}: write it as http://127.0.0.1:8080")

    def find_tier(self) -> str:
        """The first run finds out whether the service is there."""
        return _TIER

    def open_session(
        self, *, files: Mapping[str, bytes] = {}, limits: Limits | None = None
    ) -> Session:
        raise NotSupportedError(
            "sandbox_fusion has no sessions that last: set sandbox.kind to local or docker"
        )

    def close(self) -> None:
        """Nothing is held between runs."""

    def _run(self, job: Job, limits: Limits) -> Result:
        check_files(job.files)
        for path in job.collect:
            if "*" in path or "?" in path or "[" in path:
                raise ConfigError(f"sandbox_fusion gathers files by name, not by pattern: {path!r}")
        request = {
            **_program(job),
            "stdin": _text(job.stdin),
            "run_timeout": limits.seconds,
            "memory_limit_MB": limits.memory // MEBIBYTE,
            "files": protocol.pack_files(job.files),
            "fetch_files": list(job.collect),
        }
        start = time.monotonic()
        with self._places:
            queued = time.monotonic() - start
            try:
                answer = self._ask(json.dumps(request).encode(), limits)
                result = _result(answer, job.collect, limits)
            except (OSError, http.client.HTTPException, ValueError) as error:
                reason = f"{self.settings.url}: {str(error) or type(error).__name__}"[:300]
                result = Result(Status.INFRASTRUCTURE, _TIER, limits, error=reason)
        runtime = f"service {self.settings.url}"
        return replace(result, queued=queued, limited_by="service", runtime=runtime)

    def _ask(self, body: bytes, limits: Limits) -> bytes:
        """The answer to one request. Raises OSError, HTTPException or ValueError for one that is
        late, too long, or malformed."""
        deadline = limits.seconds + self.settings.answer_seconds
        start, late = time.monotonic(), threading.Event()
        secure = self._url.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        connection = kind(self._url.hostname or "", self._url.port, timeout=deadline)
        # Both streams with every character escaped, and all files.
        most = 12 * limits.output + 2 * limits.disk + MEBIBYTE
        try:
            connection.connect()
            left = max(0.0, start + deadline - time.monotonic())
            timer = threading.Timer(left, _hang_up, (connection.sock, late))
            timer.daemon = True
            timer.start()
            try:
                headers = {"Content-Type": "application/json", "Connection": "close"}
                connection.request("POST", f"{self._url.path.rstrip('/')}/run_code", body, headers)
                answer = connection.getresponse()
                data = answer.read(most + 1)
            finally:
                timer.cancel()
        except (OSError, http.client.HTTPException) as error:
            if late.is_set() or isinstance(error, TimeoutError):
                raise TimeoutError(f"no answer in {deadline:g} s") from None
            raise
        finally:
            connection.close()
        if late.is_set():
            raise TimeoutError(f"no whole answer in {deadline:g} s")
        if answer.status != 200:
            raise ValueError(f"HTTP status {answer.status}: {data[:200].decode(errors='replace')}")
        if len(data) > most:
            raise ValueError(f"an answer of more than {most} bytes")
        return data


def _program(job: Job) -> dict[str, str]:
    """Python, or a command by way of the service's bash."""
    if job.command:
        given = [f"{name}={value}" for name, value in job.environment.items()]
        words = ["env", *given, *job.command] if given else job.command
        return {"language": "bash", "code": shlex.join(words)}
    if job.environment:
        raise ConfigError("sandbox_fusion: a Python run takes no environment variables")
    return {"language": "python", "code": job.source}


def _text(stdin: bytes) -> str:
    try:
        return stdin.decode()
    except UnicodeDecodeError:
        raise ConfigError("sandbox_fusion: what is given on stdin has to be UTF-8 text") from None


def _is_plain(url: urllib.parse.SplitResult) -> bool:
    """An address of HTTP: a host, and at most a port and a path."""
    try:
        port = url.port
    except ValueError:
        return False
    named = url.scheme in ("http", "https") and bool(url.hostname) and port != 0
    return named and not (url.query or url.fragment or url.username)


def _hang_up(connection: socket.socket, late: threading.Event) -> None:
    """End a request that is late, wherever it is: timeouts of a socket are for each reading."""
    late.set()
    with contextlib.suppress(OSError):  # it has just ended by itself
        connection.shutdown(socket.SHUT_RDWR)


class _Run(BaseModel, strict=True):
    status: str
    return_code: int | None = None
    execution_time: float | None = None
    stdout: str | None = None
    stderr: str | None = None


class _Answer(BaseModel, strict=True):
    status: str
    message: str | None = None
    run_result: _Run | None = None
    files: dict[str, str | None] | None = None


def _result(data: bytes, collect: Sequence[str], limits: Limits) -> Result:
    """The result in an answer; ValueError if the answer makes no sense."""
    try:
        answer = _Answer.model_validate_json(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ValueError(f"this is not what run_code answers: {where} {first['msg']}") from None
    run = answer.run_result
    if answer.status not in ("Success", "Failed") or run is None:
        raise ValueError(f"the service failed ({answer.status}): {(answer.message or '')[:200]}")
    if run.status not in ("Finished", "TimeLimitExceeded"):
        raise ValueError(f"the service failed ({run.status}): {(run.stderr or '')[:200]}")
    out, err = (Capture(limits.shown) for _ in range(2))
    out.add((run.stdout or "").encode(errors="replace"))
    err.add((run.stderr or "").encode(errors="replace"))
    files, refused = _files(answer.files or {}, collect, limits)
    result = Result(
        Status.TIMEOUT,
        _TIER,
        limits,
        stdout=out.output(),
        stderr=err.output(),
        seconds=run.execution_time or 0.0,
        files=files,
        refused=refused,
    )
    if max(out.count, err.count) > limits.output:
        return replace(result, status=Status.OUTPUT_LIMIT)
    code = run.return_code
    if run.status == "TimeLimitExceeded":
        return result
    if code is None:
        raise ValueError("the answer has no return_code")
    if code < 0:
        return replace(result, status=Status.SIGNAL, signal=-code)
    status = Status.NONZERO if code else Status.OK
    if code and ended_without_memory(result.stderr):
        status = Status.OUT_OF_MEMORY
    if (answer.status == "Success") != (code == 0):
        raise ValueError(f"the service contradicts itself: {answer.status} with exit status {code}")
    return replace(result, status=status, exit_status=code)


def _files(
    given: Mapping[str, str | None], collect: Sequence[str], limits: Limits
) -> tuple[dict[str, bytes], dict[str, str]]:
    """The files that were asked for, and the refused ones with the reason."""
    taken: dict[str, bytes] = {}
    refused: dict[str, str] = {}
    left = limits.disk
    for path in [path for path in collect if path in given]:
        try:
            content = base64.b64decode(given[path] or "", validate=True)
        except ValueError:
            raise ValueError(f"the answer's file {path!r} is not base64") from None
        reason = artefacts.refusal(path) or ("too large" if len(content) > left else "")
        if reason:
            refused[path] = reason
        else:
            taken[path] = content
            left -= len(content)
    return taken, refused
