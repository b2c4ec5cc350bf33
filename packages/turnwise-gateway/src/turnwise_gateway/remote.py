"""Agents that run elsewhere and call in: the run offers tasks, and each is taken by one of them."""

import asyncio
import hmac
import json
import os
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from turnwise.errors import ConfigError, InfrastructureError
from turnwise.types import Task
from turnwise_gateway.address import Address
from turnwise_gateway.programs import Returned, variables
from turnwise_gateway.session import Session
from turnwise_gateway.settings import RemoteAgent

LONGEST_POLL = 60.0
"""Seconds for which a call waits for a task, at most."""


@dataclass
class Offer:
    task: Task
    address: Address
    model: str
    """The name of the model that its variables have."""
    taken: asyncio.Event = field(default_factory=asyncio.Event)
    withdrawn: bool = False

    @property
    def described(self) -> dict[str, Any]:
        """The task, its episode's address, and the variables that a program finds them in."""
        given = variables(self.task, self.address, self.model)
        told = json.loads(given["TURNWISE_TASK"])  # what is no JSON is text there
        return {"task": told, "address": self.address.root, "variables": given}


class Offers:
    """The tasks that wait for an agent, in the order in which their episodes began."""

    def __init__(self, key: str) -> None:
        """`key` is what agents send as their bearer token."""
        self._key = key
        self._waiting: deque[Offer] = deque()
        self._more = asyncio.Event()

    def admits(self, authorization: str) -> bool:
        """Whether a header `Authorization` has the key."""
        return hmac.compare_digest(authorization.encode(), f"Bearer {self._key}".encode())

    async def offer(self, offer: Offer) -> None:
        """Wait until an agent has taken a task; cancelled, it is withdrawn."""
        self._waiting.append(offer)
        self._more.set()
        try:
            await offer.taken.wait()
        finally:
            offer.withdrawn = not offer.taken.is_set()

    async def next(self, seconds: float) -> Offer | None:
        """The first task, for the caller to mark as taken or to give back; None where there is none
        for so many seconds, a number, at most LONGEST_POLL."""
        try:
            async with asyncio.timeout(min(seconds, LONGEST_POLL)):
                while True:
                    while self._waiting:
                        offer = self._waiting.popleft()
                        if not offer.withdrawn:
                            return offer
                    self._more.clear()
                    await self._more.wait()
        except TimeoutError:
            return None

    def give_back(self, offer: Offer) -> None:
        """Put a task first again: the agent that called is gone."""
        self._waiting.appendleft(offer)
        self._more.set()


class RemotePlayer:
    """The agents that call in, together. Example: RemotePlayer(RemoteAgent(port=8123))."""

    def __init__(self, config: RemoteAgent) -> None:
        """Raises ConfigError where the key is not in the environment."""
        key = os.environ.get(config.key_variable, "")
        if not key:
            raise ConfigError(
                f'agent = "remote": there is no environment variable {config.key_variable}: set it '
                "to a secret, which your agents send as their bearer token"
            )
        self.offers = Offers(key)
        self._patience = config.pickup_seconds

    async def play(
        self, task: Task, address: Address, session: Session, folder: Path | None = None
    ) -> Returned:
        """Offer the task; then wait for the end, which is said at the episode's address. Raises
        InfrastructureError where no agent takes it in time."""
        del folder  # it is on this machine
        try:
            with session.waiting():  # which is no time of the agent's
                async with asyncio.timeout(self._patience):
                    await self.offers.offer(Offer(task, address, session.names[0]))
        except TimeoutError:
            raise InfrastructureError(
                f"no agent called in within agent.pickup_seconds = {self._patience:g}"
            ) from None
        await session.ended.wait()
        return Returned()
