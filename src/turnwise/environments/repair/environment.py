"""The repair environment: a git repository, an issue, shell and file tools, and hidden tests.

The files that are left when the episode ends are judged in a second sandbox (`judging.py`). The
repository has one commit, of the state at hand: no history that could give the repair away. Not
here: made repositories (`tasks.py`), SWE-bench's (`instances.py`), QuixBugs' (`programs.py`).
"""

import asyncio
import difflib
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from turnwise.environments.base import Environment, EnvironmentSpec, Split
from turnwise.environments.repair import instances, programs, tasks
from turnwise.environments.repair.git import git_folder
from turnwise.environments.repair.instances import base_files, read_instances
from turnwise.environments.repair.judging import (
    WEAKNESS,
    Judgement,
    judge_calls,
    judge_program,
    judge_suite,
)
from turnwise.environments.repair.mutations import mutants
from turnwise.environments.repair.programs import read_repositories
from turnwise.environments.repair.tasks import made_tasks, tasks_hash
from turnwise.errors import ConfigError
from turnwise.sandbox.sandbox import Sandbox
from turnwise.sandbox.settings import MEBIBYTE, Limits, SandboxSettings
from turnwise.tokens import Source
from turnwise.tools.workspace import Entry, Workspace, WorkspaceTools
from turnwise.types import Action, Observation, Task, ToolCall, Trajectory, Verdict

COUNT = 1000
HELDOUT_SHARE = 0.5
RANDOM_SCORE = 0.018
"""Measured on the standard tasks: success of an agent that makes a random small change."""
MOST_FILES = 1 << 14
"""Files and folders of a repository, with those of its commit."""
DONE = Action("", "that is it", answer="done")


class Repair(WorkspaceTools, Environment):
    """Five tools: `shell`, `read_file`, `write_file`, `edit_file`, `delete_file`.

    Example:
        Repair(instances="bugs.jsonl", repositories="clones", runner="pytest",
               packages=["/srv/venv/lib/python3.11/site-packages"])
    """

    workspace: Workspace

    def __init__(
        self,
        count: int = COUNT,
        programs: str | None = None,
        instances: str | None = None,
        repositories: str = ".",
        runner: Literal["plain", "pytest"] = "plain",
        packages: Sequence[str] = (),
        heldout_share: float = HELDOUT_SHARE,
        seconds: float = 5.0,
        allow_unisolated: bool = False,
    ) -> None:
        """`count` made repositories in each split; or the `programs` of a file in QuixBugs' format;
        or the `instances` of a file in SWE-bench's format, whose clones are in the folder
        `repositories` and whose tests are run by `runner`, unittest's or pytest. Of a file
        `heldout_share` is held out. `packages` are folders that the code may import from. A shell
        call, and all tests together, may take `seconds`. `allow_unisolated` runs code where no
        sandbox works.

        Raises ConfigError for options that make no sense, DataError for a file that is broken.
        """
        files = [path for path in (programs, instances) if path is not None]
        if count < 1 or not 0 <= heldout_share <= 1:
            raise ConfigError("repair: count is 1 or more, and heldout_share 0 to 1")
        if len(files) == 2:
            raise ConfigError("repair: give either programs or instances")
        if files and count != COUNT:
            raise ConfigError("repair: count is for made repositories, not for a file")
        if not files and heldout_share != HELDOUT_SHARE:
            raise ConfigError("repair: heldout_share is for your own file: give one")
        if instances is None and (repositories, runner) != (".", "plain"):
            raise ConfigError("repair: repositories and runner are for instances: give a file")
        limits = Limits(
            seconds=seconds, cpu_seconds=seconds, memory=512 * MEBIBYTE, files=MOST_FILES
        )
        settings = SandboxSettings(
            limits=limits, allow_unisolated=allow_unisolated, packages=tuple(packages)
        )
        self.sandbox = Sandbox(settings)
        self._reference_scores = {"noop": 0.0, "oracle": 1.0}
        if programs is not None:
            self._tasks = read_repositories(Path(programs).expanduser(), heldout_share)
        elif instances is not None:
            clones = Path(repositories).expanduser()
            path = Path(instances).expanduser()
            loaded = read_instances(path, clones, runner, heldout_share)
            self._tasks = loaded.tasks
            self.warnings = [
                f"{count} instances were left out: {reason}"
                for reason, count in loaded.left_out.items()
            ]
            self.weaknesses, self.verdict_programs = [WEAKNESS], 2
        else:
            self._tasks = made_tasks(count)
            if count == COUNT:
                self._reference_scores["random"] = RANDOM_SCORE
        self._data_hash = tasks_hash(self._tasks)

    @property
    def spec(self) -> EnvironmentSpec:
        """The hash is of all tasks and of what is expected."""
        return EnvironmentSpec("repair", "1", self._data_hash, self._reference_scores)

    def tasks(self, split: Split) -> Sequence[Task]:
        return self._tasks[split]

    async def reset(self, task: Task, seed: int) -> Observation:
        """The files of the task, as a git repository."""
        del seed
        self.workspace = await asyncio.to_thread(self._workspace, task)
        return Observation(task.prompt, Source.USER)

    async def verify(self, trajectory: Trajectory) -> Verdict:
        """1 when all tests pass that failed before, and all that passed; the shares of both are
        among the parts. How the episode ended does not matter: the files count."""
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
        """A random small change of a random source file: the kind of change that made the bug."""
        sources = {
            path: entry.content.decode(errors="replace")
            for path, entry in sorted(base_files(task.data).items())
            if path.endswith(".py") and not path.startswith("tests/") and entry.kind == "file"
        }
        path = stream.choice(list(sources))
        changes = mutants(sources[path])
        if not changes:
            return [DONE]
        change = {"path": path, "text": stream.choice(changes).source}
        return [Action("", calls=(ToolCall("write_file", change),)), DONE]

    def snapshot(self) -> bytes:
        """The files, the repository's own among them."""
        return self.workspace.snapshot()

    def restore(self, state: bytes) -> None:
        self.workspace.restore(state)

    def _workspace(self, task: Task) -> Workspace:
        made, files = Workspace(self.sandbox), base_files(task.data)
        made.entries = {**files, **git_folder(files)}
        return made

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
