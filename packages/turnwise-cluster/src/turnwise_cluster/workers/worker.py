"""A worker: it plays episodes whose tokens the process of the run samples.

Its event loop has the main thread, so that code which blocks it is interrupted there as anywhere
(`interrupt.py`); methods of an actor of Ray would run in other threads. When the connection to the
run ends, so does the worker.
"""

import asyncio
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np

from turnwise.engines.base import Completion, Engine, Sampling
from turnwise.environments.base import Environment
from turnwise.environments.registry import environment_of
from turnwise.errors import ConfigError, InfrastructureError, NotSupportedError, UserError
from turnwise.rewards.composition import Reward, make_reward
from turnwise.rollout.episode import Episode
from turnwise.rollout.priority_semaphore import PrioritySemaphore
from turnwise.scaffolds.base import Scaffold
from turnwise.scaffolds.registry import make_scaffold
from turnwise.tokens import Image
from turnwise_cluster.workers.episode import Assignment
from turnwise_cluster.workers.frames import (
    CLOSING,
    Alive,
    Asked,
    Cancel,
    Failed,
    Play,
    Played,
    Ready,
    Sampled,
    Setup,
    portable,
    receive,
    send,
)

BEAT = 5.0
"""Seconds between two signs of life."""


def work(host: str, port: int, secret: bytes) -> None:
    """Be a worker, in the main thread of a process of its own."""
    asyncio.run(serve(host, port, secret))


async def serve(host: str, port: int, secret: bytes) -> None:
    """Play what the process of the run asks for, until it ends the connection."""
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(secret)
    try:
        setup = await receive(reader)
        try:
            parts = parts_of(setup)
        except UserError as error:
            send(writer, Failed(-1, ConfigError(f"on {platform.node()}: {error}")))
            await writer.drain()
            return
        send(writer, Ready(platform.node(), os.getpid(), facts_of(parts.environment)))
        await Worker(parts, reader, writer).work()
    except (asyncio.IncompleteReadError, OSError):
        pass  # the run has ended
    finally:
        writer.close()


@dataclass(frozen=True)
class Parts:
    """The parts of a recipe that a worker has, without a model."""

    environment: Environment
    variants: Mapping[str, Environment]
    """Its ablations."""
    scaffold: Scaffold
    reward: Reward | None

    def episode(self, assignment: Assignment, engine: Engine) -> Episode:
        """The agent loop of an assignment."""
        variant = assignment.variant
        return Episode(
            planned=assignment.planned,
            prototype=self.variants[variant] if variant else self.environment,
            limits=assignment.limits,
            reward=self.reward,
            weights=assignment.weights,
            scaffold=self.scaffold,
            engine=engine,
            session="",
            semaphore=PrioritySemaphore(1),  # the run's process has given it a place
            start=assignment.start,
            snapshots=assignment.snapshots,
        )


def parts_of(setup: Setup) -> Parts:
    """Build the parts, where the process of the run has built its own. Raises UserError for what is
    not there on this machine."""
    if os.path.isdir(setup.folder):
        os.chdir(setup.folder)
    sys.path += [place for place in setup.path if place not in sys.path]
    recipe = setup.recipe
    environment = environment_of(recipe)
    scaffold = make_scaffold(recipe.scaffold, setup.tokenizer, environment.tools())
    reward = None
    if recipe.reward is not None:
        # The process of the run has checked whether success dominates, where it has to.
        config = recipe.reward.model_copy(update={"dominance": False})
        reward = make_reward(config, environment.spec.parts, recipe.rollout.max_turns)
    return Parts(environment, environment.ablations(), scaffold, reward)


def facts_of(environment: Environment) -> str:
    """Whatever has to be the same in all processes of a run, as a text."""
    spec = environment.spec
    data = spec.data_hash or "unhashed"
    return f"turnwise {version('turnwise')}, {spec.name} {spec.version}, data {data}"


class Worker:
    """The episodes of one connection."""

    def __init__(
        self, parts: Parts, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._parts, self._reader, self._writer = parts, reader, writer
        self._playing: dict[int, asyncio.Task[None]] = {}
        self._asked: dict[int, asyncio.Future[Sampled]] = {}
        self._unwanted: set[int] = set()
        """Episodes that the process of the run has cancelled."""

    async def work(self) -> None:
        """Raises IncompleteReadError or OSError when the connection has ended, and everything is
        released."""
        beating = asyncio.create_task(self._beat())
        try:
            while True:
                self._take(await receive(self._reader))
        finally:
            for task in (beating, *self._playing.values()):
                task.cancel()
            if self._playing:
                await asyncio.wait(self._playing.values(), timeout=CLOSING)

    async def ask(self, number: int, prompt: Sequence[int], sampling: Sampling) -> Completion:
        """The policy's next turn in an episode. Raises InfrastructureError where it has none."""
        answered: asyncio.Future[Sampled] = asyncio.get_running_loop().create_future()
        self._asked[number] = answered
        send(self._writer, Asked(number, np.array(prompt, np.int32), sampling))
        sampled = await answered
        if sampled.completion is None:
            raise InfrastructureError(sampled.problem)
        return sampled.completion

    def _take(self, message: Play | Sampled | Cancel) -> None:
        number = message.number
        if isinstance(message, Play):
            self._playing[number] = asyncio.create_task(self._play(message))
        elif isinstance(message, Cancel):
            if number in self._playing:
                self._unwanted.add(number)
                self._playing[number].cancel()
        elif number in self._asked and not self._asked[number].done():
            self._asked[number].set_result(message)

    async def _play(self, play: Play) -> None:
        number = play.number
        episode = self._parts.episode(play.assignment, WaitingEngine(self, number))
        try:
            await episode.run()
        except asyncio.CancelledError:
            if number in self._unwanted:  # else the worker ends, and another one plays it again
                send(self._writer, Played(number, episode.trajectory))
            raise
        except Exception as error:  # noqa: BLE001 - the process of the run raises it
            send(self._writer, Failed(number, portable(error)))
        else:
            send(self._writer, Played(number, episode.trajectory))
        finally:
            del self._playing[number]
            self._asked.pop(number, None)
            self._unwanted.discard(number)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT)
            send(self._writer, Alive())


class WaitingEngine:
    """The engine of one episode, which asks the process of the run; all else about the engine is
    that process's."""

    def __init__(self, worker: Worker, number: int) -> None:
        self._worker, self._number = worker, number

    @property
    def version(self) -> int:
        """Not known here; completions have theirs. Raises NotSupportedError."""
        raise NotSupportedError("a worker does not know the version of the weights")

    def open(self, session: str) -> None: ...

    def close(self, session: str) -> None: ...

    async def generate(
        self,
        prompt: Sequence[int],
        sampling: Sampling,
        *,
        session: str,
        images: Sequence[Image] = (),
    ) -> Completion:
        """Sample one turn; raises InfrastructureError with what the engine says."""
        return await self._worker.ask(self._number, prompt, sampling)

    async def load_weights(self, weights: Mapping[str, Any], version: int) -> None: ...

    async def sleep(self) -> None: ...

    async def stop(self) -> None: ...
