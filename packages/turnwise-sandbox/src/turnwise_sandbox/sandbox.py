"""Run programs, Python and shell commands in isolation, one at a time or many at once.

    with Sandbox() as sandbox:
        sandbox.run_python("print(1)").stdout.text            # "1\\n"
        sandbox.run(["sh", "-c", "exit 3"]).status            # Status.NONZERO
        with sandbox.session() as session:
            session.run("x = 1"), session.run("x + 1")        # second stdout: "2\\n"

Each run has a sandbox of its own, which ends with it, so that nothing is left for the next. Some
are kept ready, which is what makes a short run cheap. All functions block, and may be called from
many threads: a tool's plain method runs in a thread anyway.

With kind docker the same is done in containers (docker.py). Not here: the verdict on what an agent
wrote (grading.py), and whether code is good or evil.
"""

import functools
import logging
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Mapping, Sequence

from turnwise.errors import ConfigError, NotSupportedError
from turnwise.sandbox.base import CodeSandbox
from turnwise.sandbox.result import Result, Status
from turnwise.sandbox.settings import TIERS, Limits, SandboxSettings
from turnwise_sandbox import launch as launching
from turnwise_sandbox.docker import DockerLaunch
from turnwise_sandbox.launch import Launch, Starter
from turnwise_sandbox.runs import check_command, check_files, run_job
from turnwise_sandbox.session import WorkerSession
from turnwise_sandbox.worker import Job, Worker

log = logging.getLogger(__name__)

DEFAULT = SandboxSettings()
_PROBE = "import decimal, json, sys; print(json.dumps(sys.version_info[:2]))"


class Sandbox(CodeSandbox):
    """A sandbox of this machine. Making one does nothing; the first run starts it, and finds the
    tier.

    It is closed by `close`, at the end of a `with`, when nothing refers to it, or with the program.
    """

    def __init__(self, settings: SandboxSettings = DEFAULT) -> None:
        """Settings of kind local or docker; `make_sandbox` makes any."""
        if settings.kind not in ("local", "docker"):
            raise ConfigError("a Sandbox is of kind local or docker: see make_sandbox")
        self.settings = settings
        self._lock = threading.RLock()
        self._places = threading.BoundedSemaphore(settings.concurrency)
        # So that a thousand at once do not make each other late for the deadline of a start.
        self._starting = threading.BoundedSemaphore(2 * (os.cpu_count() or 1))
        self._launch: Starter | None = None
        self._tier: str | None = None
        self._ready: deque[Worker] = deque()

    def find_tier(self) -> str:
        """See `CodeSandbox`."""
        with self._lock:
            if self._tier is None:
                self._tier = self._first_that_works()
            return self._tier

    @property
    def launcher_process(self) -> int:
        """Pid of the launcher, from which all that runs stems; starts it if need be."""
        with self._lock:
            launch = self._launcher()
        if not isinstance(launch, Launch):
            raise NotSupportedError(f"a sandbox of kind {self.settings.kind} has no launcher here")
        return launch.process.pid

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
        """See `CodeSandbox`; a run with `limits` of its own finds no interpreter ready."""
        job = Job(source=source, files=files, stdin=stdin, environment=environment, collect=collect)
        return self._run(job, limits)

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
        """See `CodeSandbox`."""
        check_command(command)
        job = Job(
            command=command, files=files, stdin=stdin, environment=environment, collect=collect
        )
        return self._run(job, limits)

    def open_session(
        self, *, files: Mapping[str, bytes] = {}, limits: Limits | None = None
    ) -> WorkerSession:
        """See `CodeSandbox`."""
        check_files(files)
        return WorkerSession(
            take=lambda: self._begun(Job(session=True, files=files), limits),
            release=self._refill,
            places=self._places,
            limits=limits or self.settings.limits,
            tier=self.find_tier(),
        )

    def close(self) -> None:
        """See `CodeSandbox`."""
        with self._lock:
            if self._launch is not None:
                _end(self._launch, self._ready)
            self._launch = None

    def _run(self, job: Job, limits: Limits | None) -> Result:
        check_files(job.files)
        start = time.monotonic()
        tier, limits_used = self.find_tier(), limits or self.settings.limits
        with self._places:
            worker = self._begun(job, limits)
            try:
                return run_job(worker, job, tier, limits_used, time.monotonic() - start)
            finally:
                worker.close()
                self._refill()

    def _begun(self, job: Job, limits: Limits | None) -> Worker:
        """A sandbox that was given its job, and has begun or (`Worker.begun`) failed to."""
        with self._starting:
            worker = self._take(limits)
            worker.begin(job)
        return worker

    def _take(self, limits: Limits | None) -> Worker:
        with self._lock:
            launch = self._launcher()
            if limits is None or limits == self.settings.limits:
                while self._ready:
                    worker = self._ready.popleft()
                    if worker.launch is launch and not worker.ticket.over.is_set():
                        return worker
                    worker.close()
        return self._new_worker(self.find_tier(), limits)

    def _refill(self) -> None:
        with self._lock:
            while self._launch is not None and len(self._ready) < self.settings.warm:
                self._ready.append(self._new_worker(self.find_tier(), None))

    def _new_worker(self, tier: str, limits: Limits | None) -> Worker:
        with self._lock:
            launch = self._launcher()
        limits = limits or self.settings.limits
        spec = launching.specification(self.settings, tier, launch, limits)
        return Worker(launch, spec, limits)

    def _launcher(self) -> Starter:
        if self._launch is not None and self._launch.ended:
            self.close()
        if self._launch is None:
            docker = self.settings.kind == "docker"
            self._launch = DockerLaunch(self.settings) if docker else Launch(self.settings)
            # For a sandbox that is never closed, as the one that a recipe's environment holds.
            weakref.finalize(self, _end, self._launch, self._ready)
        return self._launch

    def _first_that_works(self) -> str:
        wanted = self.settings.tier
        candidates: list[str] = list(TIERS) if wanted == "auto" else [wanted]
        if self.settings.kind == "docker":
            candidates = ["docker"]
        reasons: list[str] = []
        for tier in candidates:
            reason = launching.unavailable(tier) or self._probe(tier)
            if not reason:
                if tier != candidates[0]:
                    _warn_of_no_isolation(reasons[0])
                return tier
            reasons.append(f"{tier}: {reason}")
        self.close()
        raise ConfigError(f"no sandbox works here ({'; '.join(reasons)})")

    def _probe(self, tier: str) -> str:
        """Why a tier does not work here, or nothing."""
        worker = self._new_worker(tier, None)
        try:
            job = Job(source=_PROBE)
            worker.begin(job)
            result = run_job(worker, job, tier, self.settings.limits, 0.0)
        finally:
            worker.close()
        if result.status is Status.OK:
            return ""
        said = result.stderr.text.strip()[-300:]
        return said if worker.failure and said else result.error or f"{result.status}: {said}"


@functools.cache
def _warn_of_no_isolation(reason: str) -> None:
    """Say it once."""
    log.warning(
        "code runs WITHOUT ISOLATION, with all rights of your user and an open network: %s (set "
        "sandbox.tier=unisolated where that is meant, sandbox.tier=bubblewrap to refuse it)",
        reason,
    )


def _end(launch: Starter, ready: deque[Worker]) -> None:
    """End a launcher and the sandboxes that it has ready."""
    for worker in [worker for worker in ready if worker.launch is launch]:
        ready.remove(worker)
        worker.close()
    launch.close()
