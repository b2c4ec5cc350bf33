"""Environments for workers: one with an ablation, some that take their time, some that differ."""

import asyncio
import time
from collections.abc import Mapping

from tests.fakes import CAPITALS, Letters, Reporting
from turnwise.environments.base import Environment, EnvironmentSpec
from turnwise.errors import DataError
from turnwise.types import Observation, Task, Trajectory, Verdict


class Sighted(Reporting):
    """Has an ablation, in which the tool knows nothing."""

    def ablations(self) -> Mapping[str, Environment]:
        return {"blind": self.variant(Blind)}


class Blind(Sighted):
    """Half the reward, so that one sees which environment it was."""

    async def verify(self, trajectory: Trajectory) -> Verdict:
        seen = await super().verify(trajectory)
        return Verdict(seen.reward / 2 - 1, False, seen.parts, seen.detail, seen.turn_parts)


class Cutting(Letters):
    """Cuts the right answer out of what it shows."""

    async def reset(self, task: Task, seed: int) -> Observation:
        shown = self.truncate(f"Look it up. {task.prompt} {CAPITALS[task.id]}", 4)
        return Observation(shown)


class Sleeper(Letters):
    """Takes longer to set the scene than it may."""

    async def reset(self, task: Task, seed: int) -> Observation:
        await asyncio.sleep(20)
        return await super().reset(task, seed)


class SlowVerdict(Letters):
    """Is slow to judge every second episode."""

    async def verify(self, trajectory: Trajectory) -> Verdict:
        await asyncio.sleep(20 * (trajectory.episode % 2))
        return await super().verify(trajectory)


class Missing(Letters):
    """Needs what is there once: the first process that builds it takes it away."""

    built = 0

    def __init__(self) -> None:
        type(self).built += 1
        if type(self).built > 1:
            raise DataError("documents.jsonl: there is no such file")


class Changing(Letters):
    """Has other data in each process."""

    built = 0

    def __init__(self) -> None:
        type(self).built += 1
        self.version = str(type(self).built)

    @property
    def spec(self) -> EnvironmentSpec:
        return EnvironmentSpec("changing", self.version)


class Blocking(Letters):
    """Blocks the event loop when it judges every second episode."""

    async def verify(self, trajectory: Trajectory) -> Verdict:
        time.sleep(20 * (trajectory.episode % 2))
        return await super().verify(trajectory)
