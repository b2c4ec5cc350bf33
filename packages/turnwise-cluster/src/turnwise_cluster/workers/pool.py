"""The workers of a run, and which of them plays what.

An episode goes to the worker with the fewest and stays there. Those of a lost worker are played
once more by another (`replay.py`), and are ungraded if that one is lost as well. Not here: how
workers are started anew (`turnwise_cluster/pool.py`), and what is said to one (`link.py`).
"""

import asyncio
import os
import sys
from collections.abc import Callable
from typing import Any

from turnwise.config import Recipe
from turnwise.environments.base import Environment
from turnwise.rollout.remote_episode import Assignment, Sample, unplayed
from turnwise.types import Trajectory
from turnwise_cluster.pool import Launcher, ProcessLostError, ProcessPool, Start
from turnwise_cluster.workers.frames import Setup
from turnwise_cluster.workers.link import GRACE, Link
from turnwise_cluster.workers.parts import facts_of
from turnwise_cluster.workers.replay import Replay

TRIES = 2
"""Workers that may be lost with an episode, before it is ungraded."""


class WorkerPool(ProcessPool[Link]):
    """Example: `pool.set_up(...)`, `await pool.start()`, `await pool.play(...)`. See Workers."""

    kind = "worker"

    def __init__(self, launcher: Launcher, count: int, start_seconds: float) -> None:
        super().__init__(launcher, count, start_seconds)
        self._replayed = self._given_up = 0

    def set_up(self, recipe: Recipe, tokenizer: Any, environment: Environment) -> None:
        """See Workers."""
        self._setup = Setup(recipe, tokenizer, os.getcwd(), tuple(sys.path))
        self._facts = facts_of(environment)
        self._silence = recipe.rollout.max_seconds + GRACE

    def metrics(self) -> dict[str, float]:
        """See Workers."""
        return {
            "workers/lost": float(self._lost),
            "workers/episodes_replayed": float(self._replayed),
            "workers/episodes_given_up": float(self._given_up),
        }

    async def play(
        self, assignment: Assignment, sample: Sample, keep: Callable[[Trajectory], None]
    ) -> None:
        """See Workers."""
        replay, problems = Replay(sample), []
        for _ in range(TRIES):
            link, start = await self._least_loaded()
            try:
                await link.play(assignment, replay, keep)
                return
            except ProcessLostError as lost:
                start.end(str(lost))  # where it was silent and not gone
                problems.append(str(lost))
            replay.rewind()
            self._replayed += len(problems) < TRIES
        self._given_up += 1
        keep(unplayed(assignment, "; ".join(problems)))

    def _link(self, name: str, writer: asyncio.StreamWriter) -> Link:
        return Link(name, writer)

    async def _least_loaded(self) -> tuple[Link, Start[Link]]:
        """The worker with the fewest episodes. Raises RunStoppedError where none is left."""
        while not self._links:
            self._check_left(1)
            await self._change()
        return min(self._links.values(), key=lambda there: there[0].load)
