"""The servers of a run as one: given new weights, watched, brought up again when they are lost.

take ─> every server has the weights and says so ─> parity ─> `open`
lose ─> started again (or waited for), the newest weights, parity ─> up
"""

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from turnwise.errors import InfrastructureError, RunStoppedError
from turnwise_vllm.client import (
    Json,
    ServerLostError,
    ServerRefusedError,
    ServerSlowError,
    not_taken,
)
from turnwise_vllm.completions import (
    Labels,
    WrongWeightsError,
    check_read,
    read_answer,
    request_body,
    shown,
)
from turnwise_vllm.parity import ParityCheck, Probe
from turnwise_vllm.replica import Replica

WATCH_SECONDS = 2.0
"""Seconds between two checks of every server."""
BAD_LOOKS = 3
"""Failed checks in a row that mean a lost server: one may be due to this process being busy."""

log = logging.getLogger(__name__)


class Background:
    """Tasks beside the requests of an engine, and what waits for a change. Example:
    `background.start(watch())`, then `background.check(); await background.change()` until
    something is so."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._bug: BaseException | None = None

    def start(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Run a task; its exception reaches every caller of `check`."""
        task = asyncio.create_task(work)
        self._tasks.add(task)

        def noticed(ended: "asyncio.Task[None]") -> None:
            self._tasks.discard(ended)
            if not ended.cancelled() and ended.exception() is not None:
                self._bug = ended.exception()
                self.tell()

        task.add_done_callback(noticed)
        return task

    def check(self) -> None:
        """Raise the error that ended a task."""
        if self._bug is not None:
            raise self._bug

    async def change(self) -> None:
        """Wait for the next `tell`."""
        await self._changed.wait()

    def tell(self) -> None:
        """Wake everything that waits for a change."""
        self._changed.set()
        self._changed = asyncio.Event()  # what waits from now on waits for the next one

    async def stop(self) -> None:
        """Cancel all tasks, and wait for their end."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Fleet:
    """Example: `await fleet.take(folder, 3)`, and with `fleet.ask(replica, body)` requests."""

    def __init__(
        self, replicas: Sequence[Replica], parity: ParityCheck, max_restarts: int, in_flight: bool
    ) -> None:
        """Lost servers are brought up again `max_restarts` times in all; `in_flight` lets turns go
        on across an update."""
        self.replicas, self.parity = replicas, parity
        self.labels = Labels()
        self._max_restarts, self._in_flight = max_restarts, in_flight
        self.background = Background()
        self._newest: tuple[Path, str] | None = None
        """Folder of the newest weights, and what a server that has them calls them."""
        self._repairs: dict[int, asyncio.Task[None]] = {}
        self._stopped = False
        self.open = False
        """Whether requests may be sent; not while weights change, nor while servers sleep."""
        self.broken = ""
        """Why no request will be sent any more."""
        self.restarts = 0
        """Restarts of servers that were lost."""

    @property
    def begun(self) -> bool:
        """Whether the servers have had weights."""
        return self._newest is not None

    @property
    def ready(self) -> bool:
        """Whether a request may be sent now."""
        return self.open and any(replica.up for replica in self.replicas)

    def check_alive(self) -> None:
        """Raise an error that ended a task in the background, or InfrastructureError after
        `stop`."""
        if self._stopped:
            raise InfrastructureError("the engine was stopped")
        self.background.check()

    async def ask(self, replica: Replica, body: Json) -> Json:
        """The answer of a server to a request for tokens."""
        try:
            return await replica.generate(body)
        finally:
            self.background.tell()

    async def hold(self) -> None:
        """Send nothing more, and wait for what is under way, unless that goes on; each request has
        its deadline."""
        self.open = False
        while not self._in_flight and any(replica.in_flight for replica in self.replicas):
            await self.background.change()

    async def take(self, folder: Path, version: int) -> None:
        """Let every server have new weights, of which the model has the same, after `hold`. Raises
        RunStoppedError when one does not take them, or servers are lost for good."""
        first = self._newest is None
        # First of all, so that a server that is brought up meanwhile gets these.
        self._newest = folder, self.labels.add(folder.name, version)
        self.parity.expected = []
        if first:
            await self._begin()
        else:
            await asyncio.gather(*map(self._renew, range(len(self.replicas))))
        for number in range(len(self.replicas)):
            await self._check(number, f"of version {version}")
        self.open = True
        self.background.tell()

    async def sleep(self) -> None:
        """Let servers give the memory of their GPU back until `take`."""
        await self.hold()
        for replica in self.replicas:
            if replica.up:
                try:
                    await replica.sleep()
                except ServerLostError:
                    replica.up = False  # take() brings it up, when there is memory for it

    async def stop(self) -> None:
        """End own servers, and what goes on in the background. Idempotent."""
        self._stopped = True
        self.background.tell()
        await self.background.stop()
        await asyncio.gather(*(replica.stop() for replica in self.replicas))

    def lose(self, replica: Replica, reason: str) -> None:
        """The server is gone: have it brought up again, unless that has begun."""
        number = self.replicas.index(replica)
        if self._stopped or number in self._repairs:
            return
        replica.up = False
        self._repairs[number] = self.background.start(self._repair(number, reason))

    async def _begin(self) -> None:
        """Bring all servers up for the first time; one that does not start is not tried again."""
        assert self._newest is not None
        try:
            await asyncio.gather(*(replica.bring_up(*self._newest) for replica in self.replicas))
        except (ServerRefusedError, ServerSlowError) as error:
            raise not_taken(error) from error
        for replica in self.replicas:
            replica.up = True
            self.background.start(self._watch(replica))

    async def _renew(self, number: int) -> None:
        """Give a replica the newest weights, however often it has to be started for that."""
        assert self._newest is not None
        replica = self.replicas[number]
        while True:
            if number in self._repairs:
                await asyncio.wait({self._repairs[number]})
            self.check_alive()
            if self.broken:
                raise RunStoppedError(self.broken)
            if not replica.up:
                self.lose(replica, "it was lost while it slept")
                continue
            try:
                await replica.update(*self._newest, keep=self._in_flight)
            except ServerLostError as error:
                self.lose(replica, str(error))
            except (ServerRefusedError, ServerSlowError) as error:
                raise not_taken(error) from error
            else:
                return

    async def _check(self, number: int, which: str) -> None:
        """Compare a server with the model, however often it has to be started for that."""
        replica = self.replicas[number]
        while True:
            try:
                sampled = await self._sampled(replica)
            except (ServerLostError, WrongWeightsError) as error:
                self.lose(replica, str(error))
                await self._renew(number)
            except InfrastructureError as error:
                raise RunStoppedError(
                    f"vLLM at {replica.url} cannot be compared with the weights {which}: {error}"
                ) from error
            else:
                return await self.parity.update(f"vLLM at {replica.url}", sampled, which)

    async def _sampled(self, replica: Replica) -> list[Probe]:
        """The probes with what a server samples; raises WrongWeightsError for older weights."""
        newest = self.labels.newest

        async def sample(probe: Probe) -> Probe:
            most = probe.sampling.max_tokens
            body = request_body(replica.model, probe.prompt, probe.sampling, most, ())
            body["sampling_params"]["ignore_eos"] = True  # all probes are equally long
            seen = shown(probe.prompt, probe.images, self.parity.reader)
            found = await self.ask(replica, body | seen)
            check_read(found, probe.prompt, probe.images)
            answer = read_answer(found)
            self.labels.versions(answer.labels, newest, replica.url)
            return replace(probe, tokens=answer.tokens, logprobs=answer.logprobs)

        return list(await asyncio.gather(*map(sample, self.parity.probes)))

    async def _repair(self, number: int, reason: str) -> None:
        """Bring a lost server up with the newest weights, as often as the recipe allows."""
        replica = self.replicas[number]
        try:
            while not replica.up:
                if self.restarts >= self._max_restarts:
                    allowed = f"engine.max_restarts ({self._max_restarts}) allows"
                    self.broken = f"vLLM servers were lost more often than {allowed}: {reason}"
                    break
                self.restarts += 1
                log.warning("vLLM server %d is brought up again: %s", number, reason)
                try:
                    await self._bring_back(replica)
                except RunStoppedError as error:
                    self.broken = str(error)
                    break
                except InfrastructureError as error:
                    reason = str(error)
        finally:
            del self._repairs[number]
            self.background.tell()

    async def _bring_back(self, replica: Replica) -> None:
        assert self._newest is not None
        expected = self.parity.expected
        try:
            await replica.bring_up(*self._newest)
        except ServerRefusedError as error:
            raise not_taken(error) from error
        if expected and expected is self.parity.expected:  # else take() is about to check
            self.parity.compare(f"vLLM at {replica.url}", await self._sampled(replica), expected)
        replica.up = True

    async def _watch(self, replica: Replica) -> None:
        """Find out that a server is lost even while nothing is asked of it."""
        bad = 0
        while not self._stopped:
            await asyncio.sleep(WATCH_SECONDS)
            if not replica.up or not self.open:
                bad = 0
                continue
            bad = 0 if await replica.well() else bad + 1
            if replica.up and (bad >= BAD_LOOKS or replica.replaced):
                bad = 0
                self.lose(replica, f"vLLM at {replica.url} is not well, or was started again")
