"""Sampling beside learning: the rollouts of coming steps begin while earlier ones are learned from.

    max_staleness = 0     step 0 | update 0 | step 1 | update 1 | step 2 | update 2
    max_staleness = 1     step 0 | step 1   | step 2   | step 3
                                 | update 0 | update 1 | update 2

The tasks of a step are decided before any of them is played, and update s trains on step s, with
weights of version s. Step s begins once the engine has version s - max_staleness, so no token is
older than that at its update: admission is paced. Nothing finished is thrown away, and no slow
episode is put off in favour of a quicker one, so the batch has no bias towards short episodes; a
slow one holds its own update up, while up to max_staleness steps behind it are sampled. An episode
that is under way when weights change goes on with the new ones.

Next: `rollout/collect.py`.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from turnwise.types import Group

Result = TypeVar("Result")


@dataclass(frozen=True)
class Played:
    """The groups of one step, and the seconds that sampling them took."""

    groups: list[Group]
    seconds: float
    horizon: int
    """Turns of an episode at most."""
    refinement: list[Group] = field(default_factory=list)
    """Replies of the judge that are trained on beside them."""


class Pipeline:
    """The steps under way. Example:

    for step in pipeline.admit(version):
        pipeline.add(step, asyncio.create_task(sample(step)))
    groups = await pipeline.step(version)  # learn, give the engine new weights, and so on
    """

    def __init__(self, steps: range, max_staleness: int) -> None:
        """`steps` are those that are left to do."""
        self._steps, self._max_staleness = steps, max_staleness
        self._begun = steps.start
        self._tasks: dict[int, asyncio.Task[Played]] = {}

    def admit(self, version: int) -> range:
        """The steps that may begin, now that the engine samples with this version; each once."""
        begun = self._begun
        # Step version + max_staleness may sample with these weights: none of its tokens is older.
        self._begun = max(begun, min(self._steps.stop, version + self._max_staleness + 1))
        return range(begun, self._begun)

    def add(self, step: int, playing: asyncio.Task[Played]) -> None:
        """Take over a step that was begun."""
        self._tasks[step] = playing

    async def step(self, step: int) -> Played:
        """A step's episodes, when all are finished; the rollout's error ends nothing else."""
        return await self._tasks.pop(step)

    async def close(self) -> None:
        """Cancel what is under way and wait until it has released what it holds."""
        for task in self._tasks.values():
            task.cancel()
        # Their errors are of steps that nothing will be learned from.
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        self._tasks.clear()


async def beside_sampling(work: Callable[[], Result]) -> Result:
    """Do blocking work in a thread. A cancellation lets it end, and comes at the next await."""
    task = asyncio.current_task()
    assert task is not None
    running = asyncio.ensure_future(asyncio.to_thread(work))
    cancelled = 0
    while not running.done():
        try:
            # Not `await running`: a cancellation would reach it, and leave the thread to itself.
            await asyncio.wait({running})
        except asyncio.CancelledError:
            cancelled += 1
            # Given back below, as often as it came.
            task.uncancel()
    for _ in range(cancelled):
        task.cancel()
    return running.result()


class StalenessError(RuntimeError):
    """Tokens are older than the bound, or newer than the weights."""


def staleness_of(groups: Sequence[Group], step: int) -> NDArray[np.int64]:
    """int64, `step`, with whose version the update begins, less that of each sampled token."""
    members = [member for group in groups for member in group.graded]
    versions = [member.tokens.version[member.tokens.mask] for member in members]
    return step - np.concatenate([np.empty(0, np.int64), *versions])


def check_staleness(groups: Sequence[Group], step: int, max_staleness: int) -> None:
    """Raise StalenessError for a token that is older than the bound, or newer than the weights."""
    found = staleness_of(groups, step)
    if len(found) and not 0 <= found.min() <= found.max() <= max_staleness:
        raise StalenessError(
            f"update {step} has tokens that are {found.min()} to {found.max()} updates old; "
            f"the bound is {max_staleness}"
        )


def staleness_metrics(groups: Sequence[Group], step: int) -> dict[str, float]:
    """Mean and maximum over sampled tokens of graded members, if any."""
    found = staleness_of(groups, step)
    if not len(found):
        return {}
    return {"staleness/mean": float(found.mean()), "staleness/max": float(found.max())}
