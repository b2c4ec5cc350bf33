"""One run: what the host and the supervisor saw of it, as a typed result."""

import os
import signal
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence

from turnwise.errors import ConfigError
from turnwise.sandbox.base import CodeSandbox
from turnwise.sandbox.result import Output, Result, Status
from turnwise.sandbox.settings import Limits
from turnwise_sandbox.artefacts import plain_path
from turnwise_sandbox.worker import End, Job, Worker


class JobSandbox(CodeSandbox):
    """A sandbox that does jobs; one with `limits` of its own finds no interpreter ready."""

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
        job = Job(source, (), False, files, stdin, environment, collect)
        return self._run(job, limits or self.settings.limits)

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
        if not command or isinstance(command, str):
            raise ConfigError(f"a command is a list of words such as ['ls', '-l'], not {command!r}")
        job = Job("", command, False, files, stdin, environment, collect)
        return self._run(job, limits or self.settings.limits)

    @abstractmethod
    def _run(self, job: Job, limits: Limits) -> Result:
        """Do a job of a program. Raises ConfigError for a file that leaves the work folder."""


def run_job(worker: Worker, job: Job, tier: str, limits: Limits, queued: float) -> Result:
    """Let a sandbox that was given its one job come to an end, and say how it ended."""
    end: End = "broken"
    if worker.begun:
        end = worker.wait()
        if end in ("timeout", "output_limit") and not worker.stop():
            worker.kill()
    return finished(worker, end, tier, limits, queued)


def finished(worker: Worker, end: End, tier: str, limits: Limits, queued: float) -> Result:
    """The result of a sandbox that has ended, from the host's and the supervisor's evidence."""
    report = worker.report or {}
    raw = report.get("status")
    code = os.waitstatus_to_exitcode(raw) if raw is not None else None
    stdout, stderr = worker.outputs()
    status, error = _status(worker, end, code, limits, tier), ""
    if status is Status.NONZERO and ended_without_memory(stderr):
        status = Status.OUT_OF_MEMORY
    if worker.unwritable:
        error = f"its files cannot be written: {worker.unwritable}"
    if status is Status.INFRASTRUCTURE:
        error = worker.failure or f"it ended without a report ({worker.ticket.status})"
    if report.get("survivors") and not worker.kill():
        status, error = Status.INFRASTRUCTURE, f"{report['survivors']} processes cannot be killed"
    return Result(
        status=status,
        tier=tier,
        limits=limits,
        exit_status=code if code is not None and code >= 0 else None,
        signal=-code if code is not None and code < 0 else None,
        stdout=stdout,
        stderr=stderr,
        seconds=report.get("seconds", time.monotonic() - worker.started if worker.begun else 0.0),
        queued=queued,
        cpu_seconds=report.get("cpu_seconds", 0.0),
        peak_memory=report.get("peak_memory", 0),
        killed=report.get("killed", 0),
        files=worker.files(),
        refused=report.get("refused", {}),
        error=error,
        limited_by=worker.limited_by,
        runtime=worker.launch.runtime,
    )


def _status(worker: Worker, end: End, code: int | None, limits: Limits, tier: str) -> Status:
    report = worker.report or {}
    if end == "timeout":
        return Status.TIMEOUT
    if end == "output_limit":
        return Status.OUTPUT_LIMIT
    if worker.unwritable:
        return Status.NONZERO
    if worker.report is None:
        # Only where nothing isolates can the code have killed its supervisor.
        within_reach = tier == "unisolated" and os.geteuid() != 0
        killed = within_reach and worker.was_killed()
        return Status.SIGNAL if killed else Status.INFRASTRUCTURE
    if report["why"] in ("out_of_memory", "cpu_limit"):
        return Status(report["why"])
    if code == -signal.SIGXCPU:
        return Status.CPU_LIMIT
    # The kill of the hard limit is known by the time that was used.
    if code == -signal.SIGKILL and report["cpu_seconds"] >= limits.cpu_seconds:
        return Status.CPU_LIMIT
    if code is not None and code < 0:
        return Status.SIGNAL
    return Status.NONZERO if code else Status.OK


def check_files(files: Mapping[str, bytes]) -> None:
    """Raises ConfigError for a path that leaves the work folder."""
    for path in files:
        if not plain_path(path):
            raise ConfigError(f"sandbox file {path!r}: write a plain path below the work folder")


def ended_without_memory(stderr: Output) -> bool:
    """Whether Python's MemoryError is the last word on stderr; code can print that too."""
    lines = stderr.text.rstrip().splitlines()
    return bool(lines) and lines[-1].startswith("MemoryError")
