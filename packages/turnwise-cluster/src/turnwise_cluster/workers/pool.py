"""The workers of a run: started, watched, started anew when one is lost, and which plays what.

Each connects to the process of the run, which hears of its end by that connection, by its launcher,
or by its silence. An episode goes to the worker with the fewest and stays there. Those of a lost
worker are played once more by another, and are ungraded if that one is lost as well.
"""

import asyncio
import hmac
import logging
import os
import secrets
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from turnwise.config import Recipe
from turnwise.environments.base import Environment
from turnwise.errors import ConfigError, RunStoppedError
from turnwise.rollout.runner import Workers
from turnwise.types import Outcome, Trajectory
from turnwise_cluster.placement import PlacementGroup
from turnwise_cluster.workers.episode import Assignment, RemoteEpisode, Sample
from turnwise_cluster.workers.frames import (
    CLOSING,
    SECRET_BYTES,
    Failed,
    Ready,
    Setup,
    receive,
    send,
)
from turnwise_cluster.workers.link import GRACE, Link, Replay, WorkerLostError
from turnwise_cluster.workers.worker import facts_of, work

STARTS = 3
"""Times in a row that the start of one worker may fail, before it is given up."""
TRIES = 2
"""Workers that may be lost with an episode, before it is ungraded."""
HELLO = 10.0
"""Seconds that a connection has to show whose it is."""

log = logging.getLogger(__name__)


class RayLauncher:
    """Starts and ends processes in places of a cluster."""

    def __init__(self, host: str, places: PlacementGroup) -> None:
        """`host` is the address of this machine by which processes reach it."""
        self.host, self._places = host, places

    async def run(self, index: int, port: int, secret: bytes) -> str:
        """Start a process, which connects to this machine and says the secret; returns why it has
        ended. Cancelled, it ends the process."""
        process = self._places.start(index, work, self.host, port, secret)
        try:
            return (await process.wait()).reason
        finally:
            process.end()


@dataclass(eq=False)
class Start:
    """One process, from its start to its end."""

    index: int
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(SECRET_BYTES))
    ready: "asyncio.Future[Link]" = field(default_factory=lambda: _future())
    ended: "asyncio.Future[str]" = field(default_factory=lambda: _future())

    def end(self, reason: str) -> None:
        """Say that it is lost; the first reason counts."""
        if not self.ended.done():
            self.ended.set_result(reason)


def _future() -> "asyncio.Future[Any]":
    return asyncio.get_running_loop().create_future()


class WorkerPool(Workers):
    """See Workers. Example: `pool.set_up(...)`, `await pool.start()`, `await pool.play(...)`.

    Args:
        count: workers, at least 1.
        start_seconds: deadline of one worker's start.
    """

    def __init__(self, launcher: RayLauncher, count: int, start_seconds: float) -> None:
        self._launcher, self._count, self._start_seconds = launcher, count, start_seconds
        self._setup: Setup | None = None
        self._facts = ""
        self._silence = 0.0
        """Seconds without a sign of life after which a worker counts as hung."""
        self._server: asyncio.Server | None = None
        self._port = 0
        self._tending: list[asyncio.Task[str]] = []
        self._starts: dict[bytes, Start] = {}
        self._links: dict[int, tuple[Link, Start]] = {}
        self._changed = asyncio.Event()
        self._mistake: BaseException | None = None
        self._lost = self._replayed = self._given_up = 0
        self._begun = False
        """Whether work has begun."""

    def set_up(self, recipe: Recipe, tokenizer: Any, environment: Environment) -> None:
        self._setup = Setup(recipe, tokenizer, os.getcwd(), tuple(sys.path))
        self._facts = facts_of(environment)
        self._silence = recipe.rollout.max_seconds + GRACE

    def episode(self, **parts: Any) -> RemoteEpisode:
        """See Workers."""
        return RemoteEpisode(workers=self, **parts)

    def metrics(self) -> dict[str, float]:
        return {
            "workers/lost": float(self._lost),
            "workers/episodes_replayed": float(self._replayed),
            "workers/episodes_given_up": float(self._given_up),
        }

    async def start(self) -> None:
        """See Workers. Does nothing where they were started."""
        if self._server is not None:
            return
        self._server = await asyncio.start_server(self._connected, self._launcher.host, 0)
        self._port = self._server.sockets[0].getsockname()[1]
        for index in range(self._count):
            task = asyncio.create_task(self._tend(index))
            task.add_done_callback(self._tended)
            self._tending.append(task)
        while len(self._links) < self._count:
            self._check_left(self._count)
            await self._change()
        self._begun = True

    async def stop(self) -> None:
        """See Workers. What is under way has `CLOSING` seconds to release what it holds."""
        server, self._server = self._server, None
        if server is None:
            return
        server.close()
        tending, self._tending = self._tending, []
        for start in self._starts.values():
            if start.ready.done():
                start.ready.result().writer.close()
        for task in tending:
            task.cancel()
        await asyncio.gather(*tending, return_exceptions=True)

    async def play(
        self, assignment: Assignment, sample: Sample, keep: Callable[[Trajectory], None]
    ) -> None:
        replay, problems = Replay(sample), []
        for _ in range(TRIES):
            link, start = await self._least_loaded()
            try:
                await link.play(assignment, replay, keep)
                return
            except WorkerLostError as lost:
                start.end(str(lost))  # where it was silent and not gone
                problems.append(str(lost))
            replay.rewind()
            self._replayed += len(problems) < TRIES
        self._given_up += 1
        outcome, problem = Outcome.INFRASTRUCTURE_STEP, "; ".join(problems)
        keep(replace(assignment.planned, outcome=outcome, problem=problem))

    async def _least_loaded(self) -> tuple[Link, Start]:
        """The worker with the fewest episodes. Raises RunStoppedError where none is left."""
        while not self._links:
            self._check_left(1)
            await self._change()
        return min(self._links.values(), key=lambda there: there[0].load)

    async def _change(self) -> None:
        """Wait until a worker is there, lost or given up: at most `STARTS` starts."""
        self._changed.clear()
        seconds = STARTS * (self._start_seconds + CLOSING)
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            raise RunStoppedError(
                f"no worker has become ready within {seconds:g} s, and none was given up: "
                f"{len(self._links)} of {self._count} are there"
            ) from None

    def _check_left(self, fewest: int) -> None:
        """Raise RunStoppedError where fewer are left, the others being given up, or a mistake that
        all will make."""
        if self._mistake is not None:
            raise self._mistake
        reasons = [task.result() for task in self._tending if task.done()]
        if self._count - len(reasons) < fewest:
            raise RunStoppedError("; ".join(reasons))

    def _tended(self, task: "asyncio.Task[str]") -> None:
        self._changed.set()
        if self._begun and not task.cancelled():
            log.warning("%s", task.exception() or task.result())

    async def _tend(self, index: int) -> str:
        """Keep a worker there: start it, anew when it is lost. Returns why it is given up."""
        failures, reason = 0, ""
        while failures < STARTS and self._mistake is None:
            start = Start(index)
            self._starts[start.secret] = start
            running = asyncio.create_task(self._launcher.run(index, self._port, start.secret))
            running.add_done_callback(partial(_ended, start))
            try:
                reason = await self._until_lost(start)
            finally:
                del self._starts[start.secret]
                if self._server is None:  # it ends by itself, its connection being closed
                    await asyncio.wait({running}, timeout=CLOSING)
                running.cancel()
                await asyncio.wait({running})
            failures = 0 if start.ready.done() else failures + 1
        if self._mistake is not None:
            return f"worker {index}: {self._mistake}"
        return f"worker {index} could not be started {STARTS} times: {reason}"

    async def _until_lost(self, start: Start) -> str:
        """Wait for a worker to be ready, and then for its end; returns why that was."""
        both: set[asyncio.Future[Any]] = {start.ready, start.ended}
        seconds = self._start_seconds
        await asyncio.wait(both, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if not start.ready.done():
            start.end(f"it was not ready within cluster.start_seconds = {seconds:g}")
            return start.ended.result()
        link = start.ready.result()
        self._links[start.index] = link, start
        self._changed.set()
        try:
            reason = await start.ended
        finally:
            del self._links[start.index]
        self._lost += 1
        link.lose(reason)
        return reason

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Listen to one process for as long as it is there."""
        start, reason = None, "its process or its node has ended"
        try:
            async with asyncio.timeout(HELLO):
                start = self._start_of(await reader.readexactly(SECRET_BYTES))
            if start is not None:
                await self._listen(start, reader, writer)
        except TimeoutError:
            reason = "it gives no sign of life"
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            if start is not None:
                start.end(reason)
            writer.close()

    def _start_of(self, secret: bytes) -> Start | None:
        known = [start for key, start in self._starts.items() if hmac.compare_digest(key, secret)]
        return known[0] if known else None

    async def _listen(
        self, start: Start, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Raises TimeoutError for a silent process, OSError or IncompleteReadError for one that is
        gone."""
        send(writer, self._setup)
        async with asyncio.timeout(self._start_seconds):
            said = await receive(reader)
        name = f"worker {start.index}"
        if isinstance(said, Ready):
            name = f"{name} (process {said.process} on {said.node})"
        mistake = self._mistake_of(name, said)
        if mistake is not None and self._begun:
            start.end(str(mistake))  # the others go on without it
        else:
            self._mistake = self._mistake or mistake
        if mistake is not None or self._mistake is not None:
            return
        if start.ended.done():  # too late
            return
        link = Link(name, writer)
        start.ready.set_result(link)
        while True:
            async with asyncio.timeout(self._silence):
                message = await receive(reader)
            link.take(message)

    def _mistake_of(self, name: str, said: Ready | Failed) -> BaseException | None:
        """Why a process cannot work; None where it can."""
        if isinstance(said, Failed):
            return said.error
        if said.facts == self._facts:
            return None
        return ConfigError(
            f"{name} has {said.facts}, and this process {self._facts}: install the same version of "
            "turnwise on all nodes, and give them the same files"
        )


def _ended(start: Start, running: "asyncio.Task[str]") -> None:
    """Say why a process has ended."""
    if running.cancelled():
        start.end("it was ended")
    elif (error := running.exception()) is not None:
        start.end(f"{type(error).__name__}: {error}")
    else:
        start.end(running.result())
