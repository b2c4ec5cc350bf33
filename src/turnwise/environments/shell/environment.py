"""The shell environment: change a folder, or ask it, with shell commands.

What counts is the folder that is left, and the answer where one is asked for: a question must leave
the files as they are, a change must make the wanted ones and no others, on whatever way. Not here:
requests (`requests.py`), AgentBench's tasks and their own checks (`os_interaction.py`).
"""

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path

from turnwise.environments.base import Environment, EnvironmentSpec, Split
from turnwise.environments.shell import os_interaction
from turnwise.environments.shell.folders import state_of
from turnwise.environments.shell.requests import CHANGES, QUESTIONS
from turnwise.environments.shell.tasks import entries, folder_of, made_tasks, tasks_hash
from turnwise.errors import ConfigError
from turnwise.rewards.cells import cells_match
from turnwise.sandbox.sandbox import Sandbox
from turnwise.sandbox.settings import MEBIBYTE, Limits, SandboxSettings
from turnwise.tokens import Source
from turnwise.tools.tool import consequential, tool
from turnwise.tools.workspace import Workspace
from turnwise.types import Action, Observation, Task, ToolCall, Trajectory, Verdict

COUNT, MAX_REQUESTS = 1000, 3
HELDOUT_SHARE = 0.5
RANDOM_SCORE = 0.001
"""Measured on the standard tasks: success of an agent that runs the command of another request for
the same folder, and answers with a number below 10."""


class Shell(Environment):
    """One tool, `shell`.

    Example:
        Shell(records="dev.json", scripts="scripts/dev")
    """

    workspace: Workspace

    def __init__(
        self,
        count: int = COUNT,
        max_requests: int = MAX_REQUESTS,
        records: str | None = None,
        scripts: str = ".",
        heldout_share: float = HELDOUT_SHARE,
        seconds: float = 5.0,
        allow_unisolated: bool = False,
    ) -> None:
        """`count` made tasks in each split, of one to `max_requests` requests; or those of
        `records`, a .jsonl or .json file in the format of AgentBench's OS interaction, whose script
        files are below the folder `scripts`, of which `heldout_share` is held out. A command may
        take `seconds`. `allow_unisolated` runs commands where no sandbox works.

        Raises ConfigError for options that make no sense, DataError for a file that is broken.
        """
        if count < 1 or not 1 <= max_requests <= MAX_REQUESTS or not 0 <= heldout_share <= 1:
            raise ConfigError(
                f"shell: count is 1 or more, max_requests 1 to {MAX_REQUESTS}, heldout_share 0 to 1"
            )
        if records is None and (scripts, heldout_share) != (".", HELDOUT_SHARE):
            raise ConfigError("shell: scripts and heldout_share are for records: give a file")
        if records is not None and (count, max_requests) != (COUNT, MAX_REQUESTS):
            raise ConfigError("shell: count and max_requests are for made tasks, not for a file")
        limits = Limits(seconds=seconds, cpu_seconds=seconds, memory=256 * MEBIBYTE)
        self.sandbox = Sandbox(SandboxSettings(limits=limits, allow_unisolated=allow_unisolated))
        self._begin = ""
        self._reference_scores = {"noop": 0.0, "oracle": 1.0}
        if records is not None:
            self._read(Path(records).expanduser(), Path(scripts).expanduser(), heldout_share)
        else:
            self._tasks = made_tasks(count, max_requests)
            if (count, max_requests) == (COUNT, MAX_REQUESTS):
                self._reference_scores["random"] = RANDOM_SCORE
        self._data_hash = tasks_hash(self._tasks)

    @property
    def spec(self) -> EnvironmentSpec:
        """The hash is of all tasks."""
        return EnvironmentSpec("shell", "1", self._data_hash, self._reference_scores)

    def tasks(self, split: Split) -> Sequence[Task]:
        return self._tasks[split]

    async def reset(self, task: Task, seed: int) -> Observation:
        """The folder of the task."""
        del seed
        self.workspace = Workspace(self.sandbox)
        self.workspace.entries = entries(task)
        return Observation(task.prompt, Source.USER)

    @tool
    @consequential("write")
    def shell(self, command: str) -> str:
        """Run a shell command in the folder. Files stay for the next call; nothing else does."""
        return self.workspace.shell(self._begin + command if command.strip() else command)

    async def verify(self, trajectory: Trajectory) -> Verdict:
        """1 when the files are what the request makes of them and no more, and the answer is right
        where one is asked for; for records, when their own checks pass; else 0."""
        task, answer = trajectory.task, trajectory.answer
        if task.secret["kind"] == os_interaction.KIND:
            success, detail = await asyncio.to_thread(
                os_interaction.judge, self.sandbox, task, self.workspace.entries, answer
            )
            return Verdict(float(success), success, {"checks": float(success)}, detail)
        kept = state_of(self.workspace.entries) == task.secret["state"]
        wanted = task.secret["answer"]
        told = wanted is None or cells_match(answer, [wanted])
        parts = {"state": float(kept), "answer": float(told)}
        return Verdict(float(kept and told), kept and told, parts, f"answered {answer!r}")

    def oracle(self, task: Task) -> Sequence[Action]:
        """The known commands, one by one, then the answer; for records, the example or the
        answer."""
        secret = task.secret
        if secret["kind"] != os_interaction.KIND:
            calls = [ToolCall("shell", {"command": command}) for command in secret["commands"]]
            work = [Action("", "do it", (call,)) for call in calls]
            return [*work, Action("", "done", answer=secret["answer"] or "done")]
        return os_interaction.example_actions(self.sandbox, task)

    def random_actions(self, task: Task, stream: random.Random) -> Sequence[Action]:
        """The command of a random request for the same folder, and a number below 10; for records,
        what any environment has."""
        if "requests" not in task.info:
            return super().random_actions(task, stream)
        answer = Action("", answer=str(stream.randrange(10)))
        request = stream.choice([*CHANGES, *QUESTIONS])(stream, folder_of(task))
        if request is None:
            return [answer]
        return [Action("", calls=(ToolCall("shell", {"command": request.command}),)), answer]

    def snapshot(self) -> bytes:
        """The folder."""
        return self.workspace.snapshot()

    def restore(self, state: bytes) -> None:
        self.workspace.restore(state)

    def _read(self, path: Path, scripts: Path, heldout_share: float) -> None:
        loaded = os_interaction.read_tasks(path, scripts, heldout_share, self.sandbox)
        self._tasks, self._begin = loaded.tasks, os_interaction.BEGIN
        self._reference_scores["constant"] = loaded.constant
        self.weaknesses = [os_interaction.WEAKNESS]
        checks = [task.secret["check"] for tasks in self._tasks.values() for task in tasks]
        self.verdict_programs = max(map(len, checks))
        self.warnings = [
            f"{count} tasks were left out: {reason}" for reason, count in loaded.left_out.items()
        ]
