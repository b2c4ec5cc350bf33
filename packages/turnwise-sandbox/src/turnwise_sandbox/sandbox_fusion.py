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
import binascii
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
from typing import Any

from turnwise.errors import ConfigError, NotSupportedError
from turnwise.sandbox.base import CodeSandbox, Session
from turnwise.sandbox.result import Result, Status
from turnwise.sandbox.settings import MEBIBYTE, Limits, SandboxSettings
from turnwise_sandbox import artefacts, protocol
from turnwise_sandbox.runs import check_command, check_files, ended_without_memory
from turnwise_sandbox.worker import Capture

_TIER = "sandbox_fusion"


class SandboxFusion(CodeSandbox):
    """A service as a sandbox. Making one asks for nothing.

    Example: SandboxFusion(SandboxSettings(kind="sandbox_fusion", url="http://127.0.0.1:8080"))
    """

    def __init__(self, settings: SandboxSettings) -> None:
        """Raises ConfigError for a malformed address."""
        self.settings = settings
        self._places = threading.BoundedSemaphore(settings.concurrency)
        self._url = urllib.parse.urlsplit(settings.url)
        if not _is_plain(self._url):
            raise ConfigError(f"sandbox url {settings.url!r}: write it as http://127.0.0.1:8080")

    def find_tier(self) -> str:
        """The tier that results name. The first run finds out whether the service is there."""
        return _TIER

    def run_python(
        self,
        source: str,
        *,
        files: Mapping[str, bytes] = {},
        stdin: bytes = b"",
        environment: Mapping[str, str] = {},
        collect: Sequence[str] = (),
        limits: Limits | None = None,
    ) -> Result:
        """See `CodeSandbox`. Raises ConfigError for an environment, which the protocol has not."""
        if environment:
            raise ConfigError("sandbox_fusion: a Python run takes no environment variables")
        return self._run("python", source, files, stdin, collect, limits)

    def run(
        self,
        command: Sequence[str],
        *,
        files: Mapping[str, bytes] = {},
        stdin: bytes = b"",
        environment: Mapping[str, str] = {},
        collect: Sequence[str] = (),
        limits: Limits | None = None,
    ) -> Result:
        """See `CodeSandbox`; by way of the service's bash."""
        check_command(command)
        given = [f"{name}={value}" for name, value in environment.items()]
        words = ["env", *given, *command] if given else command
        return self._run("bash", shlex.join(words), files, stdin, collect, limits)

    def open_session(
        self, *, files: Mapping[str, bytes] = {}, limits: Limits | None = None
    ) -> Session:
        """Raises NotSupportedError: the protocol has only whole runs."""
        raise NotSupportedError(
            "sandbox_fusion has no sessions that last: set sandbox.kind to local or docker"
        )

    def close(self) -> None:
        """Nothing is held between runs."""

    def _run(
        self,
        language: str,
        code: str,
        files: Mapping[str, bytes],
        stdin: bytes,
        collect: Sequence[str],
        limits: Limits | None,
    ) -> Result:
        check_files(files)
        for path in collect:
            if "*" in path or "?" in path or "[" in path:
                raise ConfigError(f"sandbox_fusion gathers files by name, not by pattern: {path!r}")
        limits = limits or self.settings.limits
        request = {
            "language": language,
            "code": code,
            "stdin": _text(stdin),
            "run_timeout": limits.seconds,
            "memory_limit_MB": limits.memory // MEBIBYTE,
            "files": protocol.pack_files(files),
            "fetch_files": list(collect),
        }
        start = time.monotonic()
        with self._places:
            queued = time.monotonic() - start
            try:
                answer = self._ask(json.dumps(request).encode(), limits)
                result = _result(answer, collect, limits)
            except (OSError, http.client.HTTPException, ValueError, RecursionError) as error:
                reason = f"{self.settings.url}: {str(error) or type(error).__name__}"[:300]
                result = Result(Status.INFRASTRUCTURE, _TIER, limits, error=reason)
        runtime = f"service {self.settings.url}"
        return replace(result, queued=queued, limited_by="service", runtime=runtime)

    def _ask(self, body: bytes, limits: Limits) -> Any:
        """The answer to one request, as JSON has it. Raises OSError, HTTPException or ValueError
        for an answer that is late, too long, or malformed."""
        deadline = limits.seconds + self.settings.answer_seconds
        start, late = time.monotonic(), threading.Event()
        secure = self._url.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        connection = kind(self._url.hostname or "", self._url.port, timeout=deadline)
        most = _longest_answer(limits)
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
        return json.loads(data)


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


def _longest_answer(limits: Limits) -> int:
    """Bytes: both streams with every character escaped, and all files."""
    return 12 * limits.output + 2 * limits.disk + MEBIBYTE


def _result(answer: Any, collect: Sequence[str], limits: Limits) -> Result:
    """The result in an answer; ValueError if the answer makes no sense."""
    said = _Fields(answer)
    status, run = said.text("status"), _Fields(said.values.get("run_result"))
    if status not in ("Success", "Failed"):
        raise ValueError(f"the service failed ({status}): {said.optional('message')[:200]}")
    ended = run.text("status")
    if ended not in ("Finished", "TimeLimitExceeded"):
        raise ValueError(f"the service failed ({ended}): {run.optional('stderr')[:200]}")
    out, error = (Capture(limits.shown) for _ in range(2))
    out.add(run.optional("stdout").encode(errors="replace"))
    error.add(run.optional("stderr").encode(errors="replace"))
    stdout, stderr = out.output(), error.output()
    files, refused = _files(said.values.get("files") or {}, collect, limits)
    result = Result(
        Status.TIMEOUT, _TIER, limits, stdout=stdout, stderr=stderr, files=files, refused=refused
    )
    result = replace(result, seconds=run.seconds())
    if max(out.count, error.count) > limits.output:
        return replace(result, status=Status.OUTPUT_LIMIT)
    if ended == "TimeLimitExceeded":
        return result
    code = run.whole("return_code")
    if code < 0:
        return replace(result, status=Status.SIGNAL, signal=-code)
    status_of_code = Status.NONZERO if code else Status.OK
    if code and ended_without_memory(stderr):
        status_of_code = Status.OUT_OF_MEMORY
    if (status == "Success") != (code == 0):
        raise ValueError(f"the service contradicts itself: {status} with exit status {code}")
    return replace(result, status=status_of_code, exit_status=code)


class _Fields:
    """Fields of an answer by type; ValueError for one that is missing or of another type."""

    def __init__(self, values: Any) -> None:
        if not isinstance(values, dict):
            raise ValueError("the answer is not what run_code answers")
        self.values: dict[str, Any] = values

    def text(self, name: str) -> str:
        value = self.values.get(name)
        if not isinstance(value, str):
            raise ValueError(f"the answer has no {name}")
        return value

    def optional(self, name: str) -> str:
        return "" if self.values.get(name) is None else self.text(name)

    def whole(self, name: str) -> int:
        value = self.values.get(name)
        if type(value) is not int:
            raise ValueError(f"the answer has no {name}")
        return value

    def seconds(self) -> float:
        value = self.values.get("execution_time")
        return float(value) if isinstance(value, int | float) else 0.0


def _files(
    given: Any, collect: Sequence[str], limits: Limits
) -> tuple[dict[str, bytes], dict[str, str]]:
    """The files that were asked for, and the refused ones with the reason."""
    taken: dict[str, bytes] = {}
    refused: dict[str, str] = {}
    left = limits.disk
    for path in collect:
        text = _Fields(given).optional(path)
        if path not in given:
            continue
        try:
            content = base64.b64decode(text, validate=True)
        except binascii.Error:
            raise ValueError(f"the answer's file {path!r} is not base64") from None
        reason = artefacts.refusal(path) or ("too large" if len(content) > left else "")
        if reason:
            refused[path] = reason
        else:
            taken[path] = content
            left -= len(content)
    return taken, refused
