"""The environment in which turnwise plays the task of `whole_step.py`."""

import asyncio
from collections.abc import Sequence
from typing import ClassVar

from turnwise.environments.base import Environment, Split
from turnwise.tools.tool import tool
from turnwise.types import Task, Trajectory, Verdict


class Lookup(Environment):
    """One tool, which always finds the same. The odd episodes of a group are right, so that every
    trajectory has an advantage."""

    delay: ClassVar[float] = 0.0
    """Seconds that the tool takes."""

    def __init__(self, questions: list[str], found: str) -> None:
        self.questions, self.found = questions, found

    def tasks(self, split: Split) -> Sequence[Task]:
        """The questions."""
        return [Task(question, question) for question in self.questions]

    @tool
    async def search(self, query: str) -> str:
        """Look something up."""
        if self.delay:
            await asyncio.sleep(self.delay)
        return self.found

    async def verify(self, trajectory: Trajectory) -> Verdict:
        """Whether it is an odd one."""
        value = float(trajectory.episode % 2)
        return Verdict(value, value > 0)
