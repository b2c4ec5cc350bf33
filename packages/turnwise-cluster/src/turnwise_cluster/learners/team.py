"""The processes of a learner, seen from the first of them: started, called, ended.

What is called here is called on every rank, with the same arguments, and its result is that of this
one.
"""

import os
import select
import socket
import sys
import time
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

import torch

from turnwise.errors import InfrastructureError
from turnwise_cluster.learners.launcher import (
    Arrival,
    RankLauncher,
    RankProcess,
    RankSetup,
    Rendezvous,
    Subprocesses,
    send,
)
from turnwise_cluster.learners.parts import Parts
from turnwise_cluster.learners.process_group import join, leave, listen
from turnwise_cluster.placement import ExitStatus

Result = TypeVar("Result")
END_SECONDS = 10.0
"""The longest time that a process may take to end, before it is killed."""
FOUND_DEAD_SECONDS = 5.0
"""The longest time in which the end of a process is known whose connection is gone."""


class Team:
    """This process as rank 0, and `count` - 1 others that end with it, even if it is killed.

    Args:
        threads: of the numerical library, in each of them.
        seconds: deadline of all that ranks wait for.
        logs: the folder of what the others print, which each of them sees; made if it is not there.
        launcher: starts the others; without one, they are processes of this machine.
        replicas: copies of the divided model, each over `count / replicas` processes.
        start_seconds: deadline of all processes' start.

    Raises InfrastructureError where a process does not start.
    """

    def __init__(
        self,
        count: int,
        device: torch.device,
        threads: int,
        seconds: float,
        logs: Path,
        launcher: RankLauncher | None = None,
        replicas: int = 1,
        start_seconds: float = 300.0,
    ) -> None:
        self.seconds, self.logs = seconds, logs.absolute()
        self.parts: Any = None
        """Called on this rank; `build` makes it."""
        self._processes: dict[int, RankProcess] = {}
        self._connections: dict[int, socket.socket] = {}
        self._arrivals: dict[int, Arrival] = {}
        self.logs.mkdir(parents=True, exist_ok=True)
        launcher = launcher or Subprocesses()
        rendezvous = Rendezvous(launcher.host)
        try:
            store, port = listen(launcher.host, count, seconds)

            def setup(rank: int) -> RankSetup:
                at = (launcher.host, rendezvous.port, port, rendezvous.secret)
                found = (str(self._log(rank)), os.getcwd(), tuple(sys.path))
                return RankSetup(*at, rank, count, device.type, threads, seconds, replicas, *found)

            for rank in range(1, count):
                self._processes[rank] = launcher.start(setup(rank))
            self._wait_until_ready(rendezvous, start_seconds)
            self.ranks = join(store, setup(0))
        except BaseException:
            self._kill()
            raise
        finally:
            rendezvous.close()

    def build(self, own: Callable[[], Parts], name: str, *arguments: Any) -> Parts:
        """Make the parts of every rank: on this one by `own`, on others by the one of `MAKERS` that
        is named. Raises InfrastructureError as `call` does."""
        made = self._together(own, name, *arguments)
        self.parts = made
        return made

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a method of the parts, such as "learner.score", on every rank; returns what it gives
        on this one.

        Raises InfrastructureError, and ends all ranks, where one has ended or does not answer.
        """
        return self._together(lambda: attrgetter(name)(self.parts)(*arguments), name, *arguments)

    def _together(self, own: Callable[[], Result], name: str, *arguments: Any) -> Result:
        """Do this rank's share of a call, beside the others."""
        begun = time.monotonic()
        try:
            for connection in self._connections.values():
                send(connection, (name, arguments))
            return own()
        except (RuntimeError, OSError) as error:  # collectives have no error of their own
            problem = self._problem(name.removeprefix("learner."), time.monotonic() - begun)
            self._kill()
            if not problem:
                raise
            raise InfrastructureError(problem) from error
        except BaseException:
            self._kill()  # they are in the middle of a call, which nobody ends
            raise

    def close(self) -> None:
        """End the other ranks; returns when they are gone. Idempotent."""
        for connection in self._connections.values():
            connection.close()
        deadline = time.monotonic() + END_SECONDS
        for process in self._processes.values():
            process.ended(max(0.0, deadline - time.monotonic()))
            process.end()
        self._connections, self._processes = {}, {}
        leave()

    def _kill(self) -> None:
        """End the other ranks wherever they are."""
        for process in self._processes.values():
            process.end()
        self.close()

    def _log(self, rank: int) -> Path:
        return self.logs / f"rank-{rank}.log"

    def _wait_until_ready(self, rendezvous: Rendezvous, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while missing := self._processes.keys() - self._connections.keys():
            rank = min(missing)
            if (found := rendezvous.arrival(0.1)) is not None:
                arrival, connection = found
                connection.settimeout(self.seconds)  # a rank that hangs reads nothing
                self._arrivals[arrival.rank] = arrival
                self._connections[arrival.rank] = connection
            elif ends := self._ends():
                raise InfrastructureError(self._ended(*ends[0], "its start"))
            elif time.monotonic() > deadline:
                raise InfrastructureError(
                    f"learner rank {rank} was not ready within cluster.start_seconds = "
                    f"{seconds:g}: see {self._log(rank)}"
                )

    def _problem(self, name: str, seconds: float) -> str:
        """Say why a call has failed where another rank is the reason; "" if none is."""
        deadline = time.monotonic() + FOUND_DEAD_SECONDS
        gone = self._gone()
        while time.monotonic() < deadline:
            ends = self._ends()
            # One that was killed explains the others; else the reason of each is waited for.
            if ends and (ends[0][1].lost or gone <= {rank for rank, _ in ends}):
                return self._ended(*ends[0], name)
            time.sleep(0.05)
            gone = self._gone()
        if gone:
            return self._ended(min(gone), ExitStatus("its process or its node is gone"), name)
        if seconds >= self.seconds:
            return (
                f"learner ranks do not answer within cluster.seconds = {self.seconds:g} in {name}: "
                f"see {self.logs}"
            )
        return ""

    def _ends(self) -> list[tuple[int, ExitStatus]]:
        """The ranks that have ended. First those that something has ended, as this is the reason
        why others have."""
        ends = [(rank, process.ended()) for rank, process in self._processes.items()]
        found = [(rank, end) for rank, end in ends if end is not None]
        return sorted(found, key=lambda each: not each[1].lost)

    def _gone(self) -> set[int]:
        """The ranks whose connection has ended: they never say anything."""
        ranks = {connection: rank for rank, connection in self._connections.items()}
        readable, _, _ = select.select(list(ranks), [], [], 0)
        return {ranks[connection] for connection in readable}

    def _ended(self, rank: int, end: ExitStatus, during: str) -> str:
        log = self._log(rank)
        lines = log.read_text(errors="replace").split("\n") if log.exists() else []
        told = next(
            (line.strip() for line in reversed(lines) if line.strip()), "it printed nothing"
        )
        arrival = self._arrivals.get(rank)
        there = f" (process {arrival.process} on {arrival.node})" if arrival is not None else ""
        return (
            f"learner rank {rank}{there} ended in {during} ({end.reason}): {told} "
            f"(all of it: {log})"
        )
