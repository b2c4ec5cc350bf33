"""Task folders of Harbor (Terminal-Bench 2) and of Terminal-Bench 1, done in the project's sandbox.

Harbor's have `task.toml`, `instruction.md`, `environment/Dockerfile`, `tests/test.sh` (which writes
`/logs/verifier/reward.txt` or `reward.json`) and `solution/solve.sh`; Terminal-Bench 1's
`task.yaml`, `Dockerfile`, `run-tests.sh`, `tests` and `solution.sh`.

They have a container each, here there is a folder, made by the steps of the Dockerfile in the
sandbox: /app, /root and the like are folders in it, in instructions and scripts too. Tests run in a
second sandbox over what the agent left. Only tasks that hold here are kept: the own solution has to
reach 1, and doing nothing must not.
"""

import asyncio
import base64
import json
import math
import re
import shlex
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

from turnwise.environments.base import Environment, EnvironmentSpec
from turnwise.environments.records import read_text
from turnwise.environments.tasksets import SOLVED, TaskSet, kept
from turnwise.errors import DataError
from turnwise.ranges import Range, Share
from turnwise.rewards.parts import RewardPart
from turnwise.sandbox.base import CodeSandbox
from turnwise.sandbox.choice import make_sandbox
from turnwise.sandbox.result import Status
from turnwise.sandbox.settings import MEBIBYTE, Limits
from turnwise.tools.tool import consequential, tool
from turnwise.types import Action, Observation, Task, ToolCall, Trajectory, Verdict
from turnwise_environments.adapters.dockerfile import (
    Dockerfile,
    UnsupportedDockerfile,
    read_dockerfile,
)
from turnwise_environments.common import identity
from turnwise_environments.folders import (
    CLEAN,
    ROOT,
    check_place,
    entries,
    is_folder,
    leads_out,
    plain,
    workspace_of,
)
from turnwise_sandbox.artefacts import AUTOMATIC
from turnwise_sandbox.tools.workspace import MAX_BYTES, Entry, Workspace

TESTS, LOGS, SOLUTION = "tests", "logs/verifier", "solution"
WEAKNESS = (
    "a task's tests run the agent's programs beside themselves: these can read the tests and write "
    "the reward"
)
PLACES = "app|workspace|root|home|opt|srv|mnt|data|var|tmp|tests|logs|solution|oracle"


@dataclass(frozen=True)
class TaskFolder:
    """A task folder as it is on disk."""

    name: str
    instruction: str
    dockerfile: Dockerfile
    context: Path
    """The folder that the Dockerfile copies from."""
    tests: Mapping[str, bytes]
    """Files of the tests by path, the script that is run among them."""
    script: str
    """The path of that script, below the folder of the tests."""
    solution: Mapping[str, bytes]
    solve: str
    variables: Mapping[str, str]
    """Environment variables of the tests."""
    writes_reward: bool
    """Whether the script writes its reward; else its exit status is it."""


def read_tasks(folder: Path, sandbox: CodeSandbox) -> tuple[list[Task], list[str]]:
    """The tasks of a folder that hold here, at any depth, and what was left out, and why. Raises
    DataError for a folder without any."""
    if not folder.is_dir():
        raise DataError(f"{folder}: there is no such folder")
    names = (*folder.rglob("task.toml"), *folder.rglob("task.yaml"))
    read: list[Task | str] = []
    for place in sorted({name.parent for name in names}):
        try:
            read_one = _harbor if (place / "task.toml").is_file() else _terminal_bench
            read.append(_task(read_one(place), sandbox))
        except UnsupportedDockerfile as reason:
            read.append(str(reason))
    if not read:
        raise DataError(f"{folder}: there is no task.toml and no task.yaml in it")
    return kept(read, folder, "tasks")


def judge(
    sandbox: CodeSandbox, secret: Mapping[str, Any], left: Mapping[str, Entry]
) -> tuple[float, str]:
    """The reward, and what the tests said. Tests that write none, or are stopped, give 0."""
    outside = (TESTS, LOGS, SOLUTION)
    kept = {
        path: entry
        for path, entry in left.items()
        if not any(path == one or path.startswith(f"{one}/") for one in outside)
        and not ("/" not in path and path in AUTOMATIC)
        and not (entry.kind == "link" and leads_out(path, left, outside))
    }
    tests = {
        f"{TESTS}/{path}": base64.b64decode(content) for path, content in secret["tests"].items()
    }
    workspace = Workspace(sandbox, tests)
    workspace.entries = {**kept, **workspace.entries}
    result, problem = workspace.run(secret["command"])
    said = (result.stdout.text + result.stderr.text).strip()[-300:] or problem
    if not secret["writes_reward"]:
        return float(result.status is Status.OK), said
    return _reward(workspace.files), said


def _reward(files: Mapping[str, bytes]) -> float:
    text = files.get(f"{LOGS}/reward.txt", b"").decode(errors="replace").strip()
    try:
        values = [text]
        if not text:
            found = json.loads(files.get(f"{LOGS}/reward.json", b"{}"))
            values = [found["reward"]] if "reward" in found else list(found.values())
        reward = float(values[0]) if len(values) == 1 else 0.0
    except (ValueError, TypeError, AttributeError, RecursionError):
        return 0.0
    return reward if math.isfinite(reward) else 0.0


def _harbor(place: Path) -> TaskFolder:
    try:
        table = tomllib.loads(read_text(place / "task.toml"))
        settings, verifier = table.get("environment", {}), table.get("verifier", {})
        building, judging = (
            {key: str(value) for key, value in one.get("env", {}).items()}
            for one in (settings, verifier)
        )
    except (tomllib.TOMLDecodeError, RecursionError, AttributeError) as error:
        raise DataError(f"{place / 'task.toml'}: {error}") from None
    if (place / "steps").is_dir():
        raise UnsupportedDockerfile("it has several steps")
    if (place / "environment" / "docker-compose.yaml").is_file():
        raise UnsupportedDockerfile("it needs several containers")
    if verifier.get("environment") or verifier.get("environment_mode") == "separate":
        raise UnsupportedDockerfile("it is judged in an environment of its own")
    dockerfile = read_dockerfile(_needed(place / "environment" / "Dockerfile"))
    dockerfile.variables |= building
    dockerfile.workdir = str(settings.get("workdir") or dockerfile.workdir)
    return TaskFolder(
        name=place.name,
        instruction=_needed(place / "instruction.md"),
        dockerfile=dockerfile,
        context=place / "environment",
        tests=_files(place / "tests", "test.sh"),
        script="test.sh",
        solution=_files(place / "solution", "solve.sh"),
        solve="solve.sh",
        variables=judging,
        writes_reward=True,
    )


def _terminal_bench(place: Path) -> TaskFolder:
    import yaml

    try:
        table = yaml.safe_load(read_text(place / "task.yaml"))
        instruction = str(table["instruction"])
        compose = place / "docker-compose.yaml"
        services = yaml.safe_load(read_text(compose))["services"] if compose.is_file() else {}
        several = len(services or ()) > 1
    except (yaml.YAMLError, KeyError, TypeError, RecursionError) as error:
        told = " ".join(str(error).split())
        raise DataError(f"{place}: task.yaml or docker-compose.yaml: {told}") from None
    if several:
        raise UnsupportedDockerfile("it needs several containers")
    run = {"run-tests.sh": _needed(place / "run-tests.sh").encode()}
    return TaskFolder(
        name=place.name,
        instruction=instruction,
        dockerfile=read_dockerfile(_needed(place / "Dockerfile")),
        context=place,
        tests=_files(place / "tests", "") | run,
        script="run-tests.sh",
        solution={"solution.sh": _needed(place / "solution.sh").encode()},
        solve="solution.sh",
        variables={"TEST_DIR": f"{ROOT}/{TESTS}"},
        writes_reward=False,
    )


def _task(source: TaskFolder, sandbox: CodeSandbox) -> Task:
    folder = _made(source, sandbox)
    begin = _begin(source.dockerfile.variables, source.dockerfile.workdir)
    run = f"mkdir -p {ROOT}/{LOGS}; {_begin(source.variables, source.dockerfile.workdir)}"
    secret = {
        "tests": _encoded(source.tests),
        "command": f"{begin}{run}{CLEAN}bash {ROOT}/{TESTS}/{source.script}",
        "writes_reward": source.writes_reward,
        "solution": _solving(source),
    }
    prompt = moved(source.instruction.strip())
    data = {"folder": plain(folder), "begin": begin}
    _check(secret, begin, folder, sandbox)
    return Task(identity([prompt, data]), prompt, secret, data, {"name": source.name})


def _check(
    secret: Mapping[str, Any], begin: str, folder: dict[str, Entry], sandbox: CodeSandbox
) -> None:
    """Raises UnsupportedDockerfile for a task that does not hold here."""
    if judge(sandbox, secret, folder)[0] >= 1:
        raise UnsupportedDockerfile("doing nothing solves it")
    workspace = workspace_of(sandbox, folder)
    workspace.run(begin + secret["solution"])
    if judge(sandbox, secret, workspace.entries)[0] < 1:
        raise UnsupportedDockerfile("its own solution does not pass here")


def _made(source: TaskFolder, sandbox: CodeSandbox) -> dict[str, Entry]:
    workspace = Workspace(sandbox)
    for step in source.dockerfile.steps:
        if step.kind == "copy":
            *patterns, target = step.words
            if is_folder(target.strip("/"), workspace.entries):
                target = f"{target}/"  # a file that is copied to it goes into it
            for path, content, mode in _copied(source.context, (*patterns, target)):
                workspace.entries[path] = Entry("file", content, mode)
            if sum(len(one.content) for one in workspace.entries.values()) > MAX_BYTES:
                raise UnsupportedDockerfile(f"its files are more than {MAX_BYTES >> 20} MiB")
            continue
        command = _begin(source.dockerfile.variables, step.workdir) + moved(step.words[0])
        result, problem = workspace.run(command)
        if problem or result.status is not Status.OK:
            raise UnsupportedDockerfile("a command of its Dockerfile does not run here")
    return workspace.entries


def _copied(context: Path, words: tuple[str, ...]) -> Iterable[tuple[str, bytes, int]]:
    *patterns, target = words
    for pattern in patterns:
        plain = PurePosixPath(pattern.lstrip("/")).as_posix()
        for path in [context] if plain == "." else sorted(context.glob(plain)):
            within = sorted(path.rglob("*")) if path.is_dir() else [path]
            whole = path.is_dir() or not target.endswith("/")
            for file in within:
                if _is_own(file, context):
                    name = _below(file, path) if path.is_dir() else ("" if whole else file.name)
                    where = "/".join(part for part in (target.strip("/"), name) if part)
                    yield where, _moved_bytes(file.read_bytes()), file.stat().st_mode & 0o777


def _is_own(path: Path, folder: Path) -> bool:
    """Whether it is a file of the folder, and no link out of it, which would bring the host's."""
    return path.is_file() and path.resolve().is_relative_to(folder.resolve())


def _below(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix()


def _begin(variables: Mapping[str, str], workdir: str) -> str:
    """The shell lines before a command: its variables, and its folder."""
    exports = "".join(
        f"export {name}={shlex.quote(moved(value))}\n" for name, value in variables.items()
    ).replace("$PATH", "'\"$PATH\"'")  # the only one that is left for the shell
    place = shlex.quote(f"{ROOT}{workdir}".rstrip("/"))
    return f"export HOME={ROOT}/root\n{exports}mkdir -p {place}; cd {place}\n"


def _solving(source: TaskFolder) -> str:
    lines = []
    for path, encoded in _encoded(source.solution).items():
        file = shlex.quote(f"{ROOT}/{SOLUTION}/{path}")
        lines.append(f'mkdir -p "$(dirname {file})"; printf %s {encoded} | base64 -d > {file}')
    return "\n".join([*lines, f"bash {ROOT}/{SOLUTION}/{source.solve}"])


def _encoded(files: Mapping[str, bytes]) -> dict[str, str]:
    return {
        path: base64.b64encode(_moved_bytes(content)).decode() for path, content in files.items()
    }


def _files(folder: Path, needed: str) -> dict[str, bytes]:
    """All files of a folder, by path. Raises UnsupportedDockerfile without the one that is
    needed."""
    if needed and not (folder / needed).is_file():
        raise UnsupportedDockerfile(f"it has no {folder.name}/{needed}")
    found = sorted(path for path in folder.rglob("*") if _is_own(path, folder))
    return {_below(path, folder): path.read_bytes() for path in found}


def _needed(path: Path) -> str:
    if not path.is_file():
        raise UnsupportedDockerfile(f"it has no {path.name}")
    return read_text(path)


def _moved_bytes(content: bytes) -> bytes:
    try:
        return moved(content.decode()).encode()
    except UnicodeDecodeError:
        return content


_MOVED = re.compile(rf"(?<![\w./~-])/({PLACES})(?![\w.-])")


def moved(text: str) -> str:
    """Folders of a container as folders in the task's folder.

    >>> moved("cat /app/log /usr/bin/env")
    'cat /work/workspace/app/log /usr/bin/env'
    """
    return _MOVED.sub(rf"{ROOT}/\1", text)


SECONDS, DEADLINE = 60.0, 600.0


class Harbor(Environment):
    """One tool, `shell`. Example: `Harbor(folder="terminal-bench-2")`."""

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
        """
        limits = Limits(seconds=seconds, cpu_seconds=seconds, memory=1024 * MEBIBYTE)
        self.sandbox = make_sandbox(sandbox, limits)
        check_place(self.sandbox)
        tasks, left_out = read_tasks(Path(folder).expanduser(), self.sandbox)
        self.weaknesses = [WEAKNESS]
        content = "\n".join(sorted(f"{task.id} {task.secret}" for task in tasks))
        self.task_set = TaskSet.shuffled(
            tasks, heldout_share, SOLVED, left_out, content=lambda _: content
        )

    async def reset(self, task: Task, seed: int) -> Observation:
        self.workspace = workspace_of(self.sandbox, entries(task))
        self._begin = str(task.data["begin"])
        return await super().reset(task, seed)

    @tool
    @consequential("write")
    def shell(self, command: str) -> str:
        """Run a shell command. Files stay for the next call; nothing else does."""
        return self.workspace.shell(self._begin + command if command.strip() else command)

    async def verify(self, trajectory: Trajectory) -> Verdict:
        """The reward that the task's tests write over what the agent left; success from 1 on."""
        reward, said = await asyncio.to_thread(
            judge, self.sandbox, trajectory.task.secret, self.workspace.entries
        )
        return Verdict(reward, reward >= 1, {"tests": reward}, said)

    def oracle(self, task: Task) -> Sequence[Action]:
        call = ToolCall("shell", {"command": task.secret["solution"]})
        return [Action("", "do it", (call,)), Action("", "done", answer="done")]

    def snapshot(self) -> bytes:
        return self._begin.encode() + b"\0" + self.workspace.snapshot()

    def restore(self, state: bytes) -> None:
        begin, _, folder = state.partition(b"\0")
        self._begin, self.workspace = begin.decode(), Workspace(self.sandbox)
        self.workspace.restore(folder)
