r"""Run programs, Python and shell commands in isolation, one at a time or many at once.

    with Sandbox() as sandbox:
        sandbox.run_python("print(1)").stdout.text            # "1\n"
        sandbox.run(["sh", "-c", "exit 3"]).status            # Status.NONZERO
        with sandbox.session() as session:
            session.run("x = 1"), session.run("x + 1")        # second stdout: "2\n"

Each run has a sandbox of its own, which ends with it, so that nothing is left for the next. Some
are kept ready, which is what makes a short run cheap. All functions block, and may be called from
many threads: a tool's plain method runs in a thread anyway.

With kind docker the same is done in containers (docker.py).
"""

import logging
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from functools import cache, partial

from turnwise.errors import ConfigError, InfrastructureError
from turnwise.sandbox.result import Result, Status
from turnwise.sandbox.settings import TIERS, Limits, SandboxSettings
from turnwise_sandbox import launch as launching
from turnwise_sandbox.docker import DockerLaunch
from turnwise_sandbox.launch import Launch, Starter
from turnwise_sandbox.runs import JobSandbox, check_files, run_job
from turnwise_sandbox.session import WorkerSession
from turnwise_sandbox.worker import Job, Worker

log = logging.getLogger(__name__)

DEFAULT = SandboxSettings()
_PROBE = "import decimal, json, sys; print(json.dumps(sys.version_info[:2]))"


class Sandbox(JobSandbox):
    """A sandbox of this machine, or in Docker. The first run starts it, and finds the tier.

    It is closed by `close`, at the end of a `with`, when nothing refers to it, or with the program.
    """

    def __init__(self, settings: SandboxSettings = DEFAULT) -> None:
        """Settings of kind local or docker; `make_sandbox` makes any."""
        if settings.kind not in ("local", "docker"):
            raise ConfigError("a Sandbox is of kind local or docker: see make_sandbox")
        self.settings = settings
        self._lock = threading.RLock()  # methods that hold it call each other
        self._places = threading.BoundedSemaphore(settings.concurrency)
        # So that a thousand at once do not make each other late for the deadline of a start.
        self._starting = threading.BoundedSemaphore(2 * (os.cpu_count() or 1))
        self._launch: Starter | None = None
        self._tier: str | None = None
        self._ready: deque[Worker] = deque()

    def find_tier(self) -> str:
        with self._lock:
            if self._tier is None:
                self._tier = self._first_that_works()
            return self._tier

    def open_session(
        self, *, files: Mapping[str, bytes] = {}, limits: Limits | None = None
    ) -> WorkerSession:
        check_files(files)
        chosen = limits or self.settings.limits
        take = partial(self._begun, Job(session=True, files=files), chosen)
        return WorkerSession(take, self._refill, self._places, chosen, self.find_tier())

    def close(self) -> None:
        with self._lock:
            if self._launch is not None:
                _end(self._launch, self._ready)
            self._launch = None

    def _run(self, job: Job, limits: Limits) -> Result:
        check_files(job.files)
        start, tier = time.monotonic(), self.find_tier()
        with self._places:
            worker = self._begun(job, limits)
            try:
                return run_job(worker, job, tier, limits, time.monotonic() - start)
            finally:
                worker.close()
                self._refill()

    def _begun(self, job: Job, limits: Limits) -> Worker:
        """A sandbox that was given its job, and has begun or (`Worker.begun`) failed to."""
        with self._starting:
            worker = self._take(limits)
            worker.begin(job)
        return worker

    def _take(self, limits: Limits) -> Worker:
        with self._lock:
            launch = self._launcher()
            # Those kept ready have the limits of the settings.
            if limits == self.settings.limits:
                while self._ready:
                    worker = self._ready.popleft()
                    if worker.launch is launch and not worker.ticket.over.is_set():
                        return worker
                    worker.close()
        return self._new_worker(self.find_tier(), limits)

    def _refill(self) -> None:
        # A run that is over is not to fail for want of a sandbox for the next one.
        with self._lock, suppress(InfrastructureError):
            while self._launch is not None and len(self._ready) < self.settings.warm:
                self._ready.append(self._new_worker(self.find_tier(), self.settings.limits))

    def _new_worker(self, tier: str, limits: Limits) -> Worker:
        with self._lock:
            launch = self._launcher()
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
        wanted = "docker" if self.settings.kind == "docker" else self.settings.tier
        candidates, reasons = list(TIERS) if wanted == "auto" else [wanted], list[str]()
        for tier in candidates:
            reason = launching.unavailable(tier, self.settings.python) or self._probe(tier)
            if not reason:
                # A tier that was asked for by name is meant.
                if tier != candidates[0]:
                    _warn_of_no_isolation(reasons[0])
                return tier
            reasons.append(f"{tier}: {reason}")
        self.close()
        raise ConfigError(f"no sandbox works here ({'; '.join(reasons)})")

    def _probe(self, tier: str) -> str:
        """The reason why a tier does not work here, or nothing."""
        limits, job = self.settings.limits, Job(source=_PROBE)
        worker = self._new_worker(tier, limits)
        try:
            worker.begin(job)
            result = run_job(worker, job, tier, limits, 0.0)
        finally:
            worker.close()
        if result.status is Status.OK:
            return ""
        said = result.stderr.text.strip()[-300:]
        return said if worker.failure and said else result.error or f"{result.status}: {said}"


@cache
def _warn_of_no_isolation(reason: str) -> None:
    log.warning(
        "code runs WITHOUT ISOLATION, with all rights of your user and an open network: %s (set "
        "sandbox.tier=unisolated where that is meant, sandbox.tier=bubblewrap to refuse it)",
        reason,
    )


def _end(launch: Starter, ready: deque[Worker]) -> None:
    for worker in [worker for worker in ready if worker.launch is launch]:
        ready.remove(worker)
        worker.close()
    launch.close()
