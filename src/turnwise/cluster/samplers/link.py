"""The process of the run's side of one sampler's process: what it is sent, and its answers.

Not here: the sessions that it samples for (`lane.py`), which outlive it.
"""

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from turnwise.cluster.frames import Failed, send
from turnwise.cluster.pool import ProcessLostError
from turnwise.cluster.samplers.frames import Ask, Close, Frame, Load, Loaded, Open, Sampled
from turnwise.cluster.samplers.weights import send_weights
from turnwise.engines.base import Completion, Sampling

NUMBERS = itertools.count()
"""Numbers of the turns of this process."""
WEIGHTS = -1
"""The number under which new weights are awaited."""


class Receiver(Protocol):
    """Gets what is sampled for the sessions of a run."""

    def take(self, number: int, answer: "Completion | BaseException") -> bool:
        """Take a turn, or why there is none; returns whether it was awaited."""
        ...

    def disconnect(self, link: "Link", reason: str) -> None:
        """The process is lost."""
        ...


@dataclass(eq=False)
class Link:
    """A sampler's process."""

    name: str
    """For messages: "sampler 1 (process 4711 on node-b)"."""
    writer: asyncio.StreamWriter
    index: int
    receiver: Receiver
    sampled: int = 0
    """Turns that it has sampled for the run."""
    _own: "dict[int, asyncio.Future[Any]]" = field(default_factory=dict)
    """Answers that are awaited here, by their numbers."""

    def tell(self, frame: Frame) -> None:
        """Send requests of one moment."""
        send(self.writer, frame)

    def take(self, message: Any) -> None:
        """See ProcessLink."""
        if isinstance(message, Loaded):
            self._answer(WEIGHTS, message.version)
        elif isinstance(message, Failed):
            if not self._answer(message.number, message.error):
                self.receiver.take(message.number, message.error)
        elif isinstance(message, Sampled) and not self._answer(message.number, message.completion):
            self.sampled += self.receiver.take(message.number, message.completion)

    def lose(self, reason: str) -> None:
        """See ProcessLink."""
        lost = f"{self.name} was lost: {reason}"
        for number in list(self._own):
            self._answer(number, ProcessLostError(lost))
        self.receiver.disconnect(self, lost)
        self.writer.transport.abort()  # what is on its way would wait for a process that hangs

    async def load(self, weights: Mapping[str, Tensor], version: int) -> None:
        """Send new weights, and wait until the engine has taken them. Raises ProcessLostError, and
        what went wrong there."""
        loaded = self._awaited(WEIGHTS)
        try:
            await send_weights(self.writer, weights)
            send(self.writer, Load(version))
            await loaded
        except OSError as error:
            if loaded.done():  # why it was lost
                await loaded
            raise ProcessLostError(str(error)) from None
        finally:
            loaded.cancel()

    async def sample(self, turns: Mapping[str, tuple[Sequence[int], Sampling]]) -> list[Completion]:
        """Sample a turn of each of some sessions that are no episodes'. Raises ProcessLostError."""
        asks = [
            Ask(session, next(NUMBERS), np.array(prompt, np.int32), sampling, ())
            for session, (prompt, sampling) in turns.items()
        ]
        answers = [self._awaited(ask.number) for ask in asks]
        self.tell([*(Open(ask.session) for ask in asks), *asks])
        return list(await asyncio.gather(*map(self._close_after, asks, answers)))

    async def _close_after(self, ask: Ask, answer: "asyncio.Future[Completion]") -> Completion:
        """The turn of a session, which is closed: in lockstep the others wait for it until then."""
        completion = await answer
        self.tell([Close(ask.session)])
        return completion

    def _awaited(self, number: int) -> "asyncio.Future[Any]":
        self._own[number] = asyncio.get_running_loop().create_future()
        return self._own[number]

    def _answer(self, number: int, answer: Any) -> bool:
        """Whether the answer was awaited here."""
        if number not in self._own:
            return False
        settle(self._own.pop(number), answer)
        return True


def settle(future: "asyncio.Future[Any]", answer: Any) -> None:
    """Give a future its result, or its error, unless it was cancelled."""
    if future.done():
        return
    if isinstance(answer, BaseException):
        future.set_exception(answer)
    else:
        future.set_result(answer)
