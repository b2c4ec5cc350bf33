"""The environment of `workers.py`; apart from it, since each worker imports it."""

from collections.abc import Sequence

from turnwise.environments.base import Environment, Split
from turnwise.tools.tool import tool
from turnwise.types import Task, Trajectory, Verdict


class Errand(Environment):
    """One tool; the recipe says how long it takes."""

    def tasks(self, split: Split) -> Sequence[Task]:
        """One."""
        return [Task(f"{split} task", "Which module defines the class TarFile?")]

    @tool
    def search(self, query: str) -> str:
        """Look something up."""
        return f"[1] {query} is a class. It stands in the module tarfile of the library."

    async def verify(self, trajectory: Trajectory) -> Verdict:
        """Right, if it answered."""
        right = trajectory.answer == "tarfile"
        return Verdict(float(right), right)
