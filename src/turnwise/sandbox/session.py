"""A Python session: cells that share their variables and the work folder, in one sandbox.

A cell that goes beyond a limit ends the sandbox, and the variables are gone; the next cell gets a
new one and its result says so. An exception ends the cell only.

What it is not: a witness. Whether a cell raised is said by the process that ran it, and the code
may lie; nothing is graded on it (see grading.py).
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from turnwise.sandbox.result import Result, Status
from turnwise.sandbox.runs import finished
from turnwise.sandbox.settings import Limits, TierName
from turnwise.sandbox.worker import End, Worker


@dataclass
class Session:
    """Made by `Sandbox.session`. One thread at a time."""

    take: Callable[[], Worker]
    """Gives a sandbox that was begun as a session; see `Worker.begun`."""
    release: Callable[[], None]
    places: threading.Semaphore
    limits: Limits
    tier: TierName
    worker: Worker | None = None
    lost: bool = False
    """The sandbox ended with the last cell: variables and files are gone."""
    closed: bool = False

    def run(self, source: str) -> Result:
        """Run one cell; the value of its last expression is printed, as at a prompt.

        Status ok, or nonzero if it raised (`error` has the class, stderr the traceback), or one
        that says how the whole sandbox ended, by a limit, `sys.exit` or a crash.
        """
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

    def finish(self, collect: Sequence[str] = ()) -> Result:
        """End the session and gather allow-listed files from its work folder. None are gathered if
        the last cell ended it (`lost`) or no cell was run."""
        if self.worker is None:
            result = Result(Status.OK, self.tier, self.limits)
        elif self.worker.stop(collect):
            result = replace(self._ended("ended", 0.0), status=Status.OK, signal=None)
        else:
            self.worker.kill()
            result = self._ended("broken", 0.0)
        self.close()
        return result

    def close(self) -> None:
        """End the session. Idempotent."""
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
