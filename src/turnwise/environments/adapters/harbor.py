"""Task folders of Harbor and Terminal-Bench, done in the project's own sandbox.

One tool, `shell`; the reward is what the task's own tests write. Not here: how a folder becomes a
task, and which are left out (`harbor_tasks.py`); Harbor's own containers and agents.
"""

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from turnwise.environments.adapters.harbor_tasks import WEAKNESS, entries, judge, read_tasks
from turnwise.environments.base import Environment, EnvironmentSpec, Split
from turnwise.environments.tasksets import shuffled_split
from turnwise.errors import ConfigError
from turnwise.sandbox.choice import make_sandbox
from turnwise.sandbox.settings import MEBIBYTE, Limits
from turnwise.tokens import Source
from turnwise.tools.tool import consequential, tool
from turnwise.tools.workspace import Workspace
from turnwise.types import Action, Observation, Task, ToolCall, Trajectory, Verdict

SECONDS = 60.0


class Harbor(Environment):
    """One tool, `shell`.

    Example:
        Harbor(folder="terminal-bench-2")
    """

    workspace: Workspace
    tool_deadline = 600.0

    def __init__(
        self,
        folder: str,
        heldout_share: float = 0.5,
        seconds: float = SECONDS,
        sandbox: Mapping[str, Any] = {},
    ) -> None:
        """The task folders below `folder` that hold here, of which `heldout_share` is held out. A
        command may take `seconds`, and so may a task's tests. `sandbox` is the recipe's table of
        that name: with kind docker all tasks run in its one image.

        Raises ConfigError for options that make no sense, DataError where no task is left.
        """
        if not 0 <= heldout_share <= 1 or not 0 < seconds <= self.tool_deadline:
            most = f"{self.tool_deadline:g}"
            raise ConfigError(f"harbor: heldout_share is 0 to 1, seconds above 0 and up to {most}")
        limits = Limits(seconds=seconds, cpu_seconds=seconds, memory=1024 * MEBIBYTE)
        self.sandbox = make_sandbox(sandbox, limits)
        loaded = read_tasks(Path(folder).expanduser(), self.sandbox)
        self.warnings = [
            f"{count} tasks were left out: {reason}" for reason, count in loaded.left_out.items()
        ]
        self.weaknesses = [WEAKNESS]
        self._tasks = shuffled_split(loaded.tasks, heldout_share)
        rows = sorted(f"{task.id} {task.secret}" for task in loaded.tasks)
        self._data_hash = hashlib.sha256("\n".join(rows).encode()).hexdigest()

    @property
    def spec(self) -> EnvironmentSpec:
        """The hash is of all tasks with their tests. Both scores hold by how tasks are chosen."""
        return EnvironmentSpec("harbor", "1", self._data_hash, {"noop": 0.0, "oracle": 1.0})

    def tasks(self, split: Split) -> Sequence[Task]:
        return self._tasks[split]

    async def reset(self, task: Task, seed: int) -> Observation:
        """The folder of the task."""
        del seed
        self.workspace = Workspace(self.sandbox)
        self.workspace.entries = entries(task)
        self._begin = str(task.data["begin"])
        return Observation(task.prompt, Source.USER)

    @tool
    @consequential("write")
    def shell(self, command: str) -> str:
        """Run a shell command. Files stay for the next call; nothing else does."""
        return self.workspace.shell(self._begin + command if command.strip() else command)

    async def verify(self, trajectory: Trajectory) -> Verdict:
        """The reward that the task's tests write over what the agent left; success is 1 or more."""
        reward, said = await asyncio.to_thread(
            judge, self.sandbox, trajectory.task.secret, self.workspace.entries
        )
        return Verdict(reward, reward >= 1, {"tests": reward}, said)

    def oracle(self, task: Task) -> Sequence[Action]:
        """The task's own solution."""
        call = ToolCall("shell", {"command": task.secret["solution"]})
        return [Action("", "do it", (call,)), Action("", "done", answer="done")]

    def snapshot(self) -> bytes:
        """The folder."""
        return self._begin.encode() + b"\0" + self.workspace.snapshot()

    def restore(self, state: bytes) -> None:
        begin, _, folder = state.partition(b"\0")
        self._begin = begin.decode()
        self.workspace.restore(folder)
