"""Environments for workers: one with an ablation, some that take their time, some that differ, and
one that notes which process does what.
"""

import asyncio
import json
import os
import signal
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from tests.fakes import CAPITALS, Letters, Reporting
from turnwise.environments.base import Environment, EnvironmentSpec
from turnwise.errors import DataError
from turnwise.types import Action, Observation, Step, Task, Trajectory, Verdict


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


class Noting(Letters):
    """Has a state, which decides half of the verdict, and notes each part of an episode with the
    process that does it. A verdict fails as many times as asked, or kills its process."""

    def __init__(self, notes: str = "", failures: int = 0, deaths: int = 0) -> None:
        self.notes, self.failures, self.deaths = notes, failures, deaths

    async def reset(self, task: Task, seed: int) -> Observation:
        self._note("reset")
        self.state = {"luck": seed % 64 / 64, "steps": 0}
        shown = await super().reset(task, seed)
        return replace(shown, content=f"{shown.content} {seed % 64}")

    async def step(self, action: Action) -> Step:
        self.state["steps"] += 1
        step = await super().step(action)
        return step if step.observation is None else replace(step, reward=self.state["luck"])

    async def verify(self, trajectory: Trajectory) -> Verdict:
        number = self._note("verify")
        if number < self.failures:
            raise ValueError("the tests are not there")
        if number < self.deaths:
            os.kill(os.getpid(), signal.SIGKILL)
        verdict = await super().verify(trajectory)
        reward = (verdict.reward + self.state["luck"]) / 2
        return replace(verdict, reward=reward, detail=json.dumps(self.state))

    def snapshot(self) -> bytes:
        return json.dumps(self.state).encode()

    def restore(self, state: bytes) -> None:
        self._note("restore")
        self.state = json.loads(state)

    def _note(self, part: str) -> int:
        """Note a part, and how many of its kind were noted before."""
        if not self.notes:
            return 0
        file = Path(self.notes)
        with file.open("a") as notes:
            notes.write(f"{part} {os.getpid()}\n")
        return file.read_text().count(f"{part} ") - 1
