"""The processes of a learner, seen from the first of them: started, called, ended.

What is called here is called on every rank, with the same arguments, and its result is that of this
one. Not here: the other side (`worker.py`), and what can be called (`parts.py`).
"""

import contextlib
import pickle
import select
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch

from turnwise.cluster.learners.divided import DividedModel
from turnwise.cluster.learners.process_group import join, leave, listen
from turnwise.cluster.learners.worker import LENGTH, READY
from turnwise.errors import InfrastructureError

Result = TypeVar("Result")
Parts = TypeVar("Parts", bound=DividedModel)
START_SECONDS = 300.0
"""The longest time that a process may take until it could join."""
END_SECONDS = 10.0
"""The longest time that a process may take to end, before it is killed."""
FOUND_DEAD_SECONDS = 3.0
"""The longest time in which the system shows that a process has ended whose connection is gone."""


class Team:
    """This process as rank 0, and `count` - 1 others that end with it, even if it is killed.

    Args:
        threads: of the numerical library, in each of them.
        seconds: deadline of all that ranks wait for.
        logs: the folder of what the others print; made if it is not there.

    Raises InfrastructureError where a process does not start.
    """

    def __init__(
        self, count: int, device: torch.device, threads: int, seconds: float, logs: Path
    ) -> None:
        self.seconds, self.logs = seconds, logs
        self.parts: Any = None
        """Called on this rank; `build` makes it."""
        self._workers: list[subprocess.Popen[bytes]] = []
        logs.mkdir(parents=True, exist_ok=True)
        store, port = listen(count, seconds)
        try:
            for rank in range(1, count):
                given = [rank, count, port, device.type, threads, seconds]
                self._workers.append(_started(list(map(str, given)), self._log(rank)))
            self._wait_until_ready()
            self.ranks = join(store, 0, count, device.type, seconds)
        except BaseException:
            self._kill()
            raise

    def _send(self, name: str, *arguments: Any) -> None:
        """Let all other ranks call a method of their parts, or make these."""
        message = pickle.dumps((name, arguments), pickle.HIGHEST_PROTOCOL)
        for worker in self._workers:
            assert worker.stdin is not None
            worker.stdin.write(LENGTH.pack(len(message)))
            worker.stdin.write(message)
            worker.stdin.flush()

    def build(self, own: Callable[[], Parts], name: str, *arguments: Any) -> Parts:
        """Make the parts of every rank: on this one by `own`, on others by the one of `MAKERS` that
        is named. Raises InfrastructureError as `call` does."""
        made = self._together(own, name, *arguments)
        self.parts = made
        return made

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a method of the parts on every rank; returns what it gives on this one.

        Raises InfrastructureError, and ends all ranks, where one has ended or does not answer.
        """
        return self._together(lambda: getattr(self.parts, name)(*arguments), name, *arguments)

    def _together(self, own: Callable[[], Result], name: str, *arguments: Any) -> Result:
        """Do this rank's share of a call, beside the others."""
        begun = time.monotonic()
        try:
            self._send(name, *arguments)
            return own()
        except (RuntimeError, OSError) as error:  # collectives have no error of their own
            problem = self._problem(name, time.monotonic() - begun)
            self._kill()
            if not problem:
                raise
            raise InfrastructureError(problem) from error
        except BaseException:
            self._kill()
            raise

    def close(self) -> None:
        """End the other ranks; returns when they are gone. Idempotent."""
        for worker in self._workers:
            with contextlib.suppress(OSError):  # of one that has ended
                for stream in (worker.stdin, worker.stdout):
                    assert stream is not None
                    stream.close()
        for worker in self._workers:
            try:
                worker.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait(END_SECONDS)
        self._workers = []
        leave()

    def _kill(self) -> None:
        """End the other ranks wherever they are."""
        for worker in self._workers:
            worker.kill()
        self.close()

    def _log(self, rank: int) -> Path:
        return self.logs / f"rank-{rank}.log"

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        for rank, worker in enumerate(self._workers, 1):
            assert worker.stdout is not None
            left = max(0.0, deadline - time.monotonic())
            if not select.select([worker.stdout], [], [], left)[0]:
                raise InfrastructureError(
                    f"learner rank {rank} is not ready after {START_SECONDS:g} s: see "
                    f"{self._log(rank)}"
                )
            if worker.stdout.readline() != READY:
                worker.wait(END_SECONDS)
                raise InfrastructureError(self._ended(rank, worker.returncode, "its start"))

    def _problem(self, name: str, seconds: float) -> str:
        """Say why a call has failed where another rank is the reason; "" if none is."""
        deadline = time.monotonic() + FOUND_DEAD_SECONDS
        while time.monotonic() < deadline:
            codes = {rank: worker.poll() for rank, worker in enumerate(self._workers, 1)}
            ended = [(code, rank) for rank, code in codes.items() if code is not None]
            if ended:  # what a signal has ended, below 0, is the reason why others have
                code, rank = min(ended)
                return self._ended(rank, code, name)
            time.sleep(0.05)
        if seconds >= self.seconds:
            return (
                f"learner ranks do not answer within cluster.seconds = {self.seconds:g} in {name}: "
                f"see {self.logs}"
            )
        return ""

    def _ended(self, rank: int, code: int, during: str) -> str:
        lines = self._log(rank).read_text(errors="replace").split("\n")
        told = next(
            (line.strip() for line in reversed(lines) if line.strip()), "it printed nothing"
        )
        return (
            f"learner rank {rank} ended with code {code} in {during}: {told} "
            f"(all of it: {self._log(rank)})"
        )


def _started(arguments: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as file:
        return subprocess.Popen(
            [sys.executable, "-m", "turnwise.cluster.learners.worker", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=file,
        )
