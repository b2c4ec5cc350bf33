"""A Python session in a sandbox of this machine or of Docker."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from turnwise.sandbox.base import Session
from turnwise.sandbox.result import Result, Status
from turnwise.sandbox.settings import Limits
from turnwise_sandbox.runs import finished
from turnwise_sandbox.worker import End, Worker


@dataclass
class WorkerSession(Session):
    """Made by `Sandbox.open_session`."""

    take: Callable[[], Worker]
    """Gives a sandbox that was begun as a session; see `Worker.begun`."""
    release: Callable[[], None]
    places: threading.Semaphore
    limits: Limits
    tier: str
    worker: Worker | None = None
    lost: bool = False
    closed: bool = False

    def run(self, source: str) -> Result:
        if self.closed:
            raise ValueError("the session is closed")
        start, self.lost = time.monotonic(), False
        with self.places:
            if self.worker is None:
                self.worker = self.take()
                if not self.worker.begun:
                    return self._ended("broken", time.monotonic() - start)
            return self._cell(source, time.monotonic() - start)

    def _cell(self, source: str, queued: float) -> Result:
        assert self.worker is not None
        end = self.worker.run_cell(source)
        if end != "cell":
            if end in ("timeout", "output_limit") and not self.worker.stop():
                self.worker.kill()
            return self._ended(end, queued)
        error = self.worker.cell_error or ""
        status = Status.NONZERO if error else Status.OK
        stdout, stderr = self.worker.outputs()
        return Result(
            status=Status.OUT_OF_MEMORY if error == "MemoryError" else status,
            tier=self.tier,
            limits=self.limits,
            stdout=stdout,
            stderr=stderr,
            seconds=time.monotonic() - self.worker.started,
            queued=queued,
            error=error,
            limited_by=self.worker.limited_by,
            runtime=self.worker.launch.runtime,
        )

    def close(self) -> None:
        if self.worker is not None:
            self.worker.close()
            self.worker = None
        if not self.closed:
            self.closed = True
            self.release()

    def _ended(self, end: End, queued: float) -> Result:
        assert self.worker is not None
        result = finished(self.worker, end, self.tier, self.limits, queued)
        self.worker.close()
        self.worker, self.lost = None, True
        return result
