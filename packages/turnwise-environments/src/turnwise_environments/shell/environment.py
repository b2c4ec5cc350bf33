"""The shell environment: change a folder, or ask it, with shell commands.

What counts is the folder that is left, and the answer where one is asked for: a question must leave
the files as they are, a change must make the wanted ones and no others, on whatever way.
"""

import asyncio
import random
from collections.abc import Sequence

from turnwise.environments.base import Environment, EnvironmentSpec
from turnwise.environments.tasksets import every
from turnwise.environments.turn_parts import share
from turnwise.ranges import Seconds
from turnwise.sandbox.settings import MEBIBYTE, Limits, SandboxSettings
from turnwise.tools.tool import consequential, tool
from turnwise.types import Action, Observation, Task, ToolCall, Trajectory, Verdict
from turnwise_environments.folders import entries, workspace_of
from turnwise_environments.progress import cells_of, share_of_changes
from turnwise_environments.rewards.cells import cells_match
from turnwise_environments.shell import os_interaction
from turnwise_environments.shell.os_interaction import RecordFile
from turnwise_environments.shell.requests import CHANGES, QUESTIONS, state_of
from turnwise_environments.shell.tasks import STANDARD, MadeRequests, folder_of
from turnwise_sandbox.sandbox import Sandbox
from turnwise_sandbox.tools.workspace import Workspace

PARTS = {
    "state": share("whether the files are as wanted"),
    "answer": share("whether the answer is right, where one is asked for"),
    "changes": share("files changed as wanted, among all that were to be or were changed"),
}
RECORD_PARTS = {"checks": share("whether the record's own checks pass")}


class Shell(Environment):
    """One tool, `shell`. Example: `Shell(tasks=RecordFile("dev.json", scripts="scripts/dev"))`."""

    facts = EnvironmentSpec("shell", "1", parts=PARTS)
    sandbox: Sandbox
    workspace: Workspace

    def __init__(self, tasks: MadeRequests | RecordFile = STANDARD, seconds: Seconds = 5.0) -> None:
        """A command may take `seconds`."""
        limits = Limits(seconds=seconds, cpu_seconds=seconds, memory=256 * MEBIBYTE)
        self.sandbox = Sandbox(SandboxSettings(limits=limits))
        self.task_set = tasks.load(self.sandbox)
        self._begin = ""
        if isinstance(tasks, RecordFile):
            self.facts = EnvironmentSpec("shell", "1", parts=RECORD_PARTS)
            self._begin, self.weaknesses = os_interaction.BEGIN, [os_interaction.WEAKNESS]
            checks = (task.secret["check"] for _, task in every(self.task_set.tasks))
            self.verdict_programs = max(map(len, checks))

    async def reset(self, task: Task, seed: int) -> Observation:
        self.workspace = workspace_of(self.sandbox, entries(task))
        return await super().reset(task, seed)

    @tool
    @consequential("write")
    def shell(self, command: str) -> str:
        """Run a shell command in the folder. Files stay for the next call; nothing else does."""
        return self.workspace.shell(self._begin + command if command.strip() else command)

    async def verify(self, trajectory: Trajectory) -> Verdict:
        """1 when the files are what the request makes of them and no more, and the answer is right
        where one is asked for; for records, when their own checks pass."""
        task, answer = trajectory.task, trajectory.answer
        if task.secret["kind"] == os_interaction.KIND:
            success, detail = await asyncio.to_thread(
                os_interaction.judge, self.sandbox, task, self.workspace.entries, answer
            )
            return Verdict(float(success), success, {"checks": float(success)}, detail)
        before, left = state_of(entries(task)), state_of(self.workspace.entries)
        kept = left == task.secret["state"]
        wanted = task.secret["answer"]
        told = wanted is None or cells_match(answer, [wanted])
        parts = {
            "state": float(kept),
            "answer": float(told),
            "changes": share_of_changes(*map(cells_of, (before, task.secret["state"], left))),
        }
        return Verdict(float(kept and told), kept and told, parts, f"answered {answer!r}")

    def oracle(self, task: Task) -> Sequence[Action]:
        secret = task.secret
        if secret["kind"] != os_interaction.KIND:
            calls = [ToolCall("shell", {"command": command}) for command in secret["commands"]]
            work = [Action("", "do it", (call,)) for call in calls]
            return [*work, Action("", "done", answer=secret["answer"] or "done")]
        return os_interaction.example_actions(self.sandbox, task)

    def random_actions(self, task: Task, stream: random.Random) -> Sequence[Action]:
        """The command of a random request for the same folder, and a number below 10."""
        if "requests" not in task.info:
            return super().random_actions(task, stream)
        answer = Action("", answer=str(stream.randrange(10)))
        request = stream.choice([*CHANGES, *QUESTIONS])(stream, folder_of(task))
        if request is None:
            return [answer]
        return [Action("", calls=(ToolCall("shell", {"command": request.command}),)), answer]

    def snapshot(self) -> bytes:
        return self.workspace.snapshot()

    def restore(self, state: bytes) -> None:
        self.workspace = Workspace(self.sandbox)
        self.workspace.restore(state)
