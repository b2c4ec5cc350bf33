"""Processes of the learner's other ranks: of this machine, or on the nodes of a cluster."""

import pickle
import subprocess
import sys
from contextlib import suppress
from typing import Protocol

from turnwise_cluster.learners.rendezvous import RankSetup
from turnwise_cluster.learners.worker import work_on_node
from turnwise_cluster.placement import ExitStatus, PlacementGroup, Process


class RankProcess(Protocol):
    """The process of one rank; `Process` is one."""

    def ended(self, seconds: float = 0.0) -> ExitStatus | None:
        """Wait for its end; None where it has not ended after so long."""
        ...

    def end(self) -> None:
        """End it, wherever it is. Idempotent."""
        ...


class RankLauncher(Protocol):
    """Starts the processes of ranks."""

    host: str
    """The address of this machine by which they reach it."""

    def start(self, setup: RankSetup) -> RankProcess:
        """Start one; returns at once."""
        ...


class Subprocesses:
    """See RankLauncher: on this machine. On GPUs each rank has the one of its number."""

    host = "127.0.0.1"

    def start(self, setup: RankSetup) -> "Subprocess":
        with open(setup.log, "wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "turnwise_cluster.learners.worker"],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
            )
        assert process.stdin is not None
        with suppress(BrokenPipeError), process.stdin:  # of one that has ended
            pickle.dump(setup, process.stdin)
        return Subprocess(process)


class Subprocess:
    """See RankProcess."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process

    def ended(self, seconds: float = 0.0) -> ExitStatus | None:
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        return ExitStatus(f"code {code}", lost=code < 0)

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


class OnNodes:
    """See RankLauncher: on the nodes of a cluster, each with the GPU that is given to it there."""

    def __init__(self, host: str, places: PlacementGroup) -> None:
        self.host, self._places = host, places

    def start(self, setup: RankSetup) -> Process:
        return self._places.start(setup.rank, work_on_node, setup)
