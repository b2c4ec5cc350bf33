"""One server that samples: brought up, given new weights, put to sleep, ended.

The server is one that turnwise started and owns, or one that runs already.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from turnwise.errors import InfrastructureError, RunStoppedError, TurnwiseError
from turnwise_vllm.client import Client, Json, ServerSlowError
from turnwise_vllm.nodes import Server
from turnwise_vllm.sending import Transport

LOOK_SECONDS = 0.25
"""Seconds between two checks of a server that starts."""


class Replica:
    """Example: `Replica(None, "http://127.0.0.1:8000", "turnwise", transport, 300, 600)`."""

    def __init__(
        self,
        process: Server | None,
        url: str,
        model: str,
        transport: Transport,
        request_seconds: float,
        start_seconds: float,
    ) -> None:
        """A server to start, or the `url` of one that runs; `model` is the name it serves."""
        self._process, self._url, self._transport = process, url, transport
        self._request_seconds, self._start_seconds = request_seconds, start_seconds
        self._client: Client | None = None
        self._asleep = False
        self._label = ""
        self.model = model
        """The name by which it knows the newest weights."""
        self.up = False
        """Whether it has the newest weights and takes requests."""
        self.in_flight = 0
        self.replaced = False
        """Whether another server answers in its place, which has not got the weights."""

    @property
    def client(self) -> Client:
        """Connections to the server as it was brought up last."""
        assert self._client is not None  # nobody asks before it was brought up
        return self._client

    @property
    def url(self) -> str:
        """Address of the server as it was brought up last."""
        return self._process.url if self._process is not None else self._url

    async def generate(self, body: Json) -> Json:
        """Ask for tokens. Raises ServerSlowError when it is not there in time."""
        self.in_flight += 1
        try:
            async with asyncio.timeout(self._request_seconds):
                return await self.client.generate(body)
        except TimeoutError:
            raise ServerSlowError(
                f"vLLM at {self.url} did not finish a turn within engine.request_seconds = "
                f"{self._request_seconds:g}"
            ) from None
        finally:
            self.in_flight -= 1

    async def bring_up(self, weights: Path, label: str) -> None:
        """Start the server, or wait until it is reachable again, with the weights in a folder.

        Raises InfrastructureError when it ends or is not there in time.
        """
        if self._client is not None:
            await self._client.close()
        if self._process is not None:
            await self._process.stop()
            await self._process.start(self._transport.served(weights))
        self._client = Client(self.url, self._request_seconds)
        self._asleep = False
        await self._wait_until_well()
        await self._take(weights, label, started=self._process is not None)

    async def update(self, weights: Path, label: str, keep: bool = False) -> None:
        """Replace the weights; wakes a server that sleeps. With `keep`, what is in flight goes on
        with them; without, nothing may be."""
        await self._take(weights, label, started=False, keep=keep)

    async def sleep(self) -> None:
        """Give memory back until the next update. Nothing may be in flight."""
        if not self._asleep:
            await self.client.sleep()
            self._asleep = True

    async def well(self) -> bool:
        """Whether the server works and is the one that got the weights."""
        if self._process is not None:
            return await self.client.well() and await self._process.running()
        try:
            self.replaced = await self.client.label() != self._label
        except InfrastructureError:
            return False
        return not self.replaced

    async def stop(self) -> None:
        """End an own server; leave another one running. Idempotent."""
        self.up = False
        if self._client is not None:
            await self._client.close()
        if self._process is not None:
            await self._process.stop()

    async def _take(self, weights: Path, label: str, started: bool, keep: bool = False) -> None:
        """Let a server that pauses, or that wakes up, have the weights and their label; one that
        takes none of them is not left waiting."""
        client, asleep = self.client, self._asleep
        try:
            await (client.wake("weights") if asleep else client.pause(keep))
            name = await self._transport.take(client, weights, label, self._label, started)
            # Only now: a server that has taken nothing keeps the label that is true.
            await self._mark(label)
        except (TurnwiseError, asyncio.CancelledError):
            if not asleep:
                with suppress(InfrastructureError):
                    await client.give_up()
            raise
        self.model = name or self.model
        # After the weights, which take more memory while they are loaded than later.
        await (client.wake("kv_cache") if asleep else client.resume())
        self._asleep = False

    async def _mark(self, label: str) -> None:
        await self.client.set_label(label)
        found = await self.client.label()
        if found != label:
            raise RunStoppedError(
                f"vLLM at {self.url} says that its weights are {found!r} after it was given "
                f"{label!r}: they were not taken"
            )
        self._label, self.replaced = label, False

    async def _wait_until_well(self) -> None:
        deadline = time.monotonic() + self._start_seconds
        while not await self.client.well():
            if self._process is not None and not await self._process.running():
                problem = await self._process.problem()
                raise InfrastructureError(f"the vLLM server ended before it served: {problem}")
            if time.monotonic() > deadline:
                raise InfrastructureError(
                    f"vLLM at {self.url} does not serve after {self._start_seconds:g} s: raise "
                    "engine.start_seconds, or look at its log"
                )
            await asyncio.sleep(LOOK_SECONDS)


class Router:
    """Chooses the replica of a session: the one that holds its cache, else the idlest.
    Example: `Router(replicas).choose("00000012-0")`."""

    def __init__(self, replicas: Sequence[Replica]) -> None:
        self._replicas = replicas
        self._homes: dict[str, int] = {}

    def choose(self, session: str) -> Replica:
        """The session's replica if that is up; else one that is, with the fewest requests, then
        with the fewest sessions, which is the session's from now on.

        Raises ValueError when none is up.
        """
        home = self._homes.get(session)
        if home is None or not self._replicas[home].up:
            home = self._idlest()
            self._homes[session] = home
        return self._replicas[home]

    def forget(self, session: str) -> None:
        """The session is over. Idempotent."""
        self._homes.pop(session, None)

    def _idlest(self) -> int:
        held = Counter(self._homes.values())
        up = [number for number, replica in enumerate(self._replicas) if replica.up]
        return min(up, key=lambda number: (self._replicas[number].in_flight, held[number]))
