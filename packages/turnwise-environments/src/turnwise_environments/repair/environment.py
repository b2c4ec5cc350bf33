"""The repair environment: a git repository, an issue, shell and file tools, and hidden tests.

The files that are left when the episode ends are judged in a second sandbox (`judging.py`). The
repository has one commit, of the state at hand: no history that could give the repair away.
"""

import asyncio
import difflib
import random
from collections.abc import Mapping, Sequence

from turnwise.environments.base import Environment, EnvironmentSpec
from turnwise.environments.turn_parts import share
from turnwise.ranges import Seconds
from turnwise.sandbox.settings import MEBIBYTE, SandboxSettings
from turnwise.types import Action, Observation, Task, ToolCall, Trajectory, Verdict
from turnwise_environments.common import working_limits
from turnwise_environments.folders import workspace_of
from turnwise_environments.repair import instances, programs, tasks
from turnwise_environments.repair.instances import InstanceFile, base_files, git_folder
from turnwise_environments.repair.judging import (
    WEAKNESS,
    Judgement,
    judge_calls,
    judge_program,
    judge_suite,
)
from turnwise_environments.repair.mutations import mutants
from turnwise_environments.repair.programs import ProgramFile
from turnwise_environments.repair.tasks import STANDARD, MadeRepositories
from turnwise_sandbox.sandbox import Sandbox
from turnwise_sandbox.tools.workspace import Entry, Workspace, WorkspaceTools

PARTS = {
    "fail_to_pass": share("tests that failed before and pass now"),
    "pass_to_pass": share("tests that passed before and still do: all of them if nothing is done"),
}
MOST_FILES = 1 << 14
"""Files and folders of a repository, with those of its commit."""
DONE = Action("", "that is it", answer="done")


class Repair(WorkspaceTools, Environment):
    """Five tools: `shell`, `read_file`, `write_file`, `edit_file`, `delete_file`.

    Example:
        Repair(tasks=InstanceFile("bugs.jsonl", repositories="clones", runner="pytest"),
               packages=["/srv/venv/lib/python3.11/site-packages"])
    """

    facts = EnvironmentSpec("repair", "1", parts=PARTS)
    sandbox: Sandbox
    workspace: Workspace

    def __init__(
        self,
        tasks: MadeRepositories | ProgramFile | InstanceFile = STANDARD,
        packages: Sequence[str] = (),
        seconds: Seconds = 5.0,
    ) -> None:
        """`packages` are folders that the code may import from. A shell call, and all tests
        together, may take `seconds` of the processor, and up to four times as many of the clock."""
        limits = working_limits(seconds, 512 * MEBIBYTE, files=MOST_FILES)
        self.sandbox = Sandbox(SandboxSettings(limits=limits, packages=tuple(packages)))
        self.task_set = tasks.load()
        if isinstance(tasks, InstanceFile):
            # The suite, and its copy in which all tests have to fail.
            self.weaknesses, self.verdict_programs = [WEAKNESS], 2

    async def reset(self, task: Task, seed: int) -> Observation:
        self.workspace = await asyncio.to_thread(self._workspace, task)
        return await super().reset(task, seed)

    async def verify(self, trajectory: Trajectory) -> Verdict:
        """1 when all tests pass that failed before, and all that passed. How the episode ended does
        not matter: the files count."""
        judgement = await asyncio.to_thread(self._judged, trajectory.task)
        (fixed, to_fix), (kept, to_keep) = judgement.failed_before, judgement.passed_before
        parts = {
            "fail_to_pass": fixed / max(to_fix, 1),
            "pass_to_pass": kept / to_keep if to_keep else 1.0,
        }
        success = judgement.success
        return Verdict(float(success), success, parts, judgement.detail)

    def oracle(self, task: Task) -> Sequence[Action]:
        """A look at each file to be changed, and the known change."""
        if task.secret["kind"] == instances.KIND:
            patch = task.secret["patch"]
            return [Action("", "repair it", (ToolCall("edit_file", {"patch": patch}),)), DONE]
        actions = []
        for path, text in task.secret["solution"].items():
            patch = unified(path, task.data["files"][path], text)
            actions += [
                Action("", "look", (ToolCall("read_file", {"path": path}),)),
                Action("", "repair it", (ToolCall("edit_file", {"patch": patch}),)),
            ]
        return [*actions, DONE]

    def random_actions(self, task: Task, stream: random.Random) -> Sequence[Action]:
        """A random small change of a random source file."""
        sources = {
            path: entry.content.decode(errors="replace")
            for path, entry in sorted(base_files(task.data).items())
            if path.endswith(".py") and not path.startswith("tests/") and entry.kind == "file"
        }
        path = stream.choice(list(sources))
        changes = mutants(sources[path])
        if not changes:
            return [DONE]
        change = {"path": path, "text": stream.choice(changes)}
        return [Action("", calls=(ToolCall("write_file", change),)), DONE]

    def snapshot(self) -> bytes:
        return self.workspace.snapshot()

    def restore(self, state: bytes) -> None:
        self.workspace = Workspace(self.sandbox)
        self.workspace.restore(state)

    def _workspace(self, task: Task) -> Workspace:
        files = base_files(task.data)
        return workspace_of(self.sandbox, {**files, **git_folder(files)})

    def _judged(self, task: Task) -> Judgement:
        left: Mapping[str, Entry] = self.workspace.entries
        if task.secret["kind"] == tasks.KIND:
            sources = task.data["sources"]
            return judge_calls(self.sandbox, self.workspace.files, sources, task.secret)
        if task.secret["kind"] == programs.KIND:
            return judge_program(self.sandbox, self.workspace.files, task.secret)
        return judge_suite(self.sandbox, base_files(task.data), left, task.secret)


def unified(path: str, before: str, after: str) -> str:
    """The change of a file as a unified diff."""
    lines = difflib.unified_diff(
        before.split("\n"), after.split("\n"), f"a/{path}", f"b/{path}", lineterm=""
    )
    return "\n".join(lines) + "\n"
