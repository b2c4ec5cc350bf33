"""Workers on several kinds of machines, of which each does its part of an episode.

What a part has left is plain data, so where a worker is lost, its part alone is done again. Not
here: the workers of one kind (`pool.py`), and the parts themselves (`rollout/divided_episode.py`).
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from turnwise.cluster.workers.pool import WorkerPool
from turnwise.config import Recipe
from turnwise.environments.base import Environment
from turnwise.rollout.divided_episode import PARTS, EpisodePart
from turnwise.rollout.remote_episode import Assignment, Sample
from turnwise.times import EpisodeTimes
from turnwise.types import Trajectory


class DividedWorkers:
    """See Workers. Example: `DividedWorkers({"play": pool, "verify": other})`."""

    def __init__(self, pools: Mapping[EpisodePart, WorkerPool]) -> None:
        """`pools` has one for `play`, and for each part that is not done where episodes are played;
        one pool may have several."""
        self._pools = {part: pools[part] for part in PARTS if part in pools}
        self._elsewhere = tuple(part for part in self._pools if part != "play")
        self._each = list(dict.fromkeys(self._pools.values()))

    def set_up(self, recipe: Recipe, tokenizer: Any, environment: Environment) -> None:
        """See Workers."""
        for pool in self._each:
            pool.set_up(recipe, tokenizer, environment)

    async def start(self) -> None:
        """See Workers."""
        await asyncio.gather(*(pool.start() for pool in self._each))

    async def play(
        self, assignment: Assignment, sample: Sample, keep: Callable[[Trajectory], None]
    ) -> None:
        """See Workers."""
        played, left = assignment.planned, None

        def take(now: Trajectory) -> None:
            nonlocal played
            played = _together(played, now, part)
            keep(played)

        for part, pool in self._pools.items():
            if part == "reset" and assignment.start is not None:
                continue  # a branch begins with the state of another episode
            given = replace(
                assignment,
                planned=replace(played, snapshots=(), seconds=0.0, times=None),
                part=part,
                elsewhere=self._elsewhere,
                received=left,
            )
            left = await pool.play_part(given, sample, take)
            if left is None:
                return

    def metrics(self) -> dict[str, float]:
        """See Workers."""
        counts = [pool.metrics() for pool in self._each]
        return {name: sum(count[name] for count in counts) for name in counts[0]}

    async def stop(self) -> None:
        """See Workers."""
        await asyncio.gather(*(pool.stop() for pool in self._each))


def _together(before: Trajectory, now: Trajectory, part: EpisodePart) -> Trajectory:
    """An episode after a part of it, with what is known of it from those before."""
    seconds = before.seconds + now.seconds
    if part == "verify":
        return replace(
            before,
            outcome=now.outcome,
            verdict=now.verdict,
            problem=now.problem,
            seconds=seconds,
            times=_joined(before.times, now.times),
        )
    return replace(now, seconds=seconds, times=_joined(now.times, before.times))


def _joined(times: EpisodeTimes | None, others: EpisodeTimes | None) -> EpisodeTimes | None:
    """Times with those of an episode's other parts."""
    if times is None or others is None:
        return times or others
    return replace(times, elsewhere=(*times.elsewhere, *others.by_process))
