"""Task folders of Harbor and Terminal-Bench, done in the project's own sandbox.

One tool, `shell`; the reward is what the task's own tests write. Not here: how a folder becomes a
task, and which are left out (`harbor_tasks.py`); Harbor's own containers and agents.
"""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from turnwise.environments.base import Environment, EnvironmentSpec
from turnwise.environments.tasksets import SOLVED, TaskSet
from turnwise.ranges import Range, Share
from turnwise.rewards.parts import RewardPart
from turnwise.sandbox.base import CodeSandbox
from turnwise.sandbox.choice import make_sandbox
from turnwise.sandbox.settings import MEBIBYTE, Limits
from turnwise.tokens import Source
from turnwise.tools.tool import consequential, tool
from turnwise.types import Action, Observation, Task, ToolCall, Trajectory, Verdict
from turnwise_environments.adapters.harbor_tasks import WEAKNESS, entries, judge, read_tasks
from turnwise_sandbox.tools.workspace import Workspace

SECONDS, DEADLINE = 60.0, 600.0


class Harbor(Environment):
    """One tool, `shell`.

    Example:
        Harbor(folder="terminal-bench-2")
    """

    sandbox: CodeSandbox
    workspace: Workspace
    tool_deadline = DEADLINE
    facts = EnvironmentSpec(
        "harbor", "1", parts={"tests": RewardPart(description="the reward that the tests write")}
    )

    def __init__(
        self,
        folder: str,
        heldout_share: Share = 0.5,
        seconds: Annotated[float, Range(0.001, DEADLINE)] = SECONDS,
        sandbox: Mapping[str, Any] = {},
    ) -> None:
        """The task folders below `folder` that hold here, of which `heldout_share` is held out. A
        command may take `seconds`, and so may a task's tests. `sandbox` is the recipe's table of
        that name: with kind docker all tasks run in its one image.

        Doing nothing fails and the oracle succeeds by how tasks are chosen.

        Raises ConfigError for a sandbox that cannot be had, DataError where no task is left.
        """
        limits = Limits(seconds=seconds, cpu_seconds=seconds, memory=1024 * MEBIBYTE)
        self.sandbox = make_sandbox(sandbox, limits)
        tasks, left_out = read_tasks(Path(folder).expanduser(), self.sandbox)
        self.weaknesses = [WEAKNESS]
        content = "\n".join(sorted(f"{task.id} {task.secret}" for task in tasks))
        self.task_set = TaskSet.shuffled(
            tasks, heldout_share, SOLVED, left_out, content=lambda _: content
        )

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
        self._begin, self.workspace = begin.decode(), Workspace(self.sandbox)
        self.workspace.restore(folder)
