"""A stage of a run: its interface.

Not here: which stages a run has, and in which order (`run.py`).
"""

from typing import Protocol

from turnwise.training.context import RunContext


class Stage(Protocol):
    """One part of a run; whatever it is to go on from stands in its checkpoint."""

    async def run(self, context: RunContext, step: int) -> int:
        """Do the stage, from its checkpoint on if the run was interrupted in it.

        `step` is the policy's version: the number of RL and preference steps before the stage.
        Returns the version after it. Cancelled, it saves and ends.
        """
        ...
