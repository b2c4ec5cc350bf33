"""Reads tasks in the format of AgentBench's OS interaction, and judges them by their own checks.

A record has `description`, `create.init` (a script), `evaluation.match` (the answer, or a regular
expression) or `evaluation.check` (scripts: each gets the answer and what those before it wrote, and
has to exit with 0; null stands for `evaluation.example`). Scripts are text, or {code or file,
language}; files are below a folder of scripts.

AgentBench has a machine for each task, here there is a folder: /root, /home and the like are
folders in it. The checks run in a second sandbox, in the folder that the agent left; an example
whose output is the right answer runs in the folder as it was at the beginning. Not here: tasks with
a running program (`start`), C, and what needs a user, a package or a service of a real machine.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnwise.environments.base import Split
from turnwise.environments.records import read_records, read_text
from turnwise.environments.shell.tasks import entries, make_task, plain
from turnwise.environments.splits import shuffled_split
from turnwise.errors import DataError, NotSupportedError
from turnwise.sandbox.result import Status
from turnwise.sandbox.sandbox import Sandbox
from turnwise.tools.workspace import Entry, Workspace
from turnwise.types import Action, Task, ToolCall

KIND = "checks"
FOLDER = "/work/workspace"
"""Where the folder is while a command runs."""
_MOVED = re.compile(
    r"(?<![\w./-])/(root|home|opt|srv|mnt|data|var|tmp|usr)(?![\w.-])"
    r"(?!/(?:bin|sbin|lib|lib32|lib64|include|local|share)\b)"
)
BEGIN = f"export HOME={FOLDER}/root; mkdir -p root; cd root\n"
"""Before every command: where a user of AgentBench's machines is."""
LANGUAGES = ("bash", "python")

Script = tuple[str, str]
"""Language and code."""


@dataclass
class Loaded:
    """Tasks by split, and what was left out."""

    tasks: dict[Split, list[Task]]
    left_out: Mapping[str, int]
    """How many records, by the reason."""


def read_tasks(path: Path, scripts: Path, heldout_share: float, sandbox: Sandbox) -> Loaded:
    """The tasks of a file that can be done in a folder: their first script has to run here, and
    where there is an example it has to pass the task's own checks.

    Raises DataError, naming file and line or entry, for a record that is broken, and for a file of
    which nothing is left.
    """
    tasks: dict[str, Task] = {}
    left_out: dict[str, int] = {}
    for where, record in read_records(path):
        found = _task(record, scripts, where, sandbox)
        if isinstance(found, Task):
            tasks[found.id] = found
        else:
            left_out[found] = left_out.get(found, 0) + 1
    if not tasks:
        raise DataError(f"{path}: there are no records in it that can be done here: {left_out}")
    return Loaded(shuffled_split(tasks.values(), heldout_share), left_out)


def judge(
    sandbox: Sandbox,
    task: Task,
    left: Mapping[str, Entry],
    answer: str | None,
) -> tuple[bool, str]:
    """Whether the task's own checks pass, and what they said if not."""
    secret = task.secret
    if secret["match"] is not None:
        given = answer or ""
        if secret["match"].get("strip", True):
            given = given.strip()
        if "regex" in secret["match"]:
            right = re.search(str(secret["match"]["regex"]), given) is not None
        else:
            right = given == str(secret["match"]["answer"])
        return answer is not None and right, f"answered {answer!r}"
    said = [str(answer)]
    for script in secret["check"]:
        # An example's output is the right answer: the agent's folder has no part in it.
        place = entries(task) if script is None else left
        status, output = _run(sandbox, place, script or secret["example"], said)
        if status != 0:
            return False, f"a check ended with {status}: {output[-200:]}"
        said.append(output)
    return True, ""


def example_actions(sandbox: Sandbox, task: Task) -> Sequence[Action]:
    """The answer that is compared; else what the example does, with what it writes as the answer.

    Raises NotSupportedError for a pattern of answers, and where there is no example.
    """
    match, example = task.secret["match"], task.secret["example"]
    if match is not None and "answer" in match:
        return [Action("", "known", answer=str(match["answer"]))]
    if example is None:
        raise NotSupportedError(f"{task.id} comes without an example of how it is done")
    language, code = example
    command = code if language == "bash" else f"python3 -c {shlex.quote(code)}"
    _, output = _run(sandbox, entries(task), example, [])
    call = ToolCall("shell", {"command": command})
    return [Action("", "do it", (call,)), Action("", "done", answer=output.strip())]


def _task(record: Mapping[str, Any], scripts: Path, where: str, sandbox: Sandbox) -> Task | str:
    """The task of a record, or why it cannot be done here."""
    description, evaluation = record.get("description"), record.get("evaluation")
    if not isinstance(description, str) or not description.strip():
        raise DataError(f"{where}: 'description' must be there, a string that is not empty")
    if not isinstance(evaluation, dict) or not ("match" in evaluation or "check" in evaluation):
        raise DataError(f"{where}: 'evaluation' must have 'match' or 'check'")
    create = record.get("create")
    create = create if isinstance(create, dict) else {}
    if record.get("start"):
        return "a program runs beside it"
    init = _scripts(create.get("init"), scripts, where)
    check = _scripts(evaluation.get("check"), scripts, where)
    (example,) = _scripts(evaluation.get("example"), scripts, where) or [None]
    if any(script[0] not in LANGUAGES for script in (*init, *check, example) if script):
        return "a language that is not run here"
    if None in check and example is None:
        raise DataError(f"{where}: 'check' refers to an example, and there is none")
    secret = {"kind": KIND, "match": _match(evaluation), "check": check, "example": example}
    folder: Mapping[str, Entry] | None = {}
    for script in init:
        folder = _prepared(sandbox, folder or {}, script) if script else folder
        if folder is None:
            return "its folder cannot be made here"
    data = {"folder": plain(folder or {})}
    labels = {"labels": ", ".join(map(str, record.get("labels", [])))}
    task = make_task(_moved(description.strip()), secret, data, labels)
    return task if _is_solved(sandbox, task) else "its own example does not pass here"


def _is_solved(sandbox: Sandbox, task: Task) -> bool:
    """Whether the example passes; True where there is none."""
    example = task.secret["example"]
    if example is None or task.secret["match"] is not None:
        return True
    workspace = Workspace(sandbox)
    workspace.entries = entries(task)
    result, _ = workspace.run(_command(example, []))
    answer = result.stdout.text.strip()
    return judge(sandbox, task, workspace.entries, answer)[0]


def _prepared(
    sandbox: Sandbox, folder: Mapping[str, Entry], script: Script
) -> Mapping[str, Entry] | None:
    workspace = Workspace(sandbox)
    workspace.entries = dict(folder)
    result, problem = workspace.run(_command(script, []))
    return None if problem or result.status is not Status.OK else workspace.entries


def _run(
    sandbox: Sandbox, folder: Mapping[str, Entry], script: Script, words: Sequence[str]
) -> tuple[int, str]:
    """Exit status and output of a script; 124 if it was stopped at a limit."""
    workspace = Workspace(sandbox)
    workspace.entries = dict(folder)
    result, _ = workspace.run(_command(script, words))
    status = 124 if result.exit_status is None else result.exit_status
    return status, result.stdout.text


def _command(script: Script, words: Sequence[str]) -> str:
    language, code = script
    given = shlex.join(word.replace("\0", "") for word in words)
    if language == "python":
        return f"{BEGIN}python3 -c {shlex.quote(code)} {given}"
    return f"{BEGIN}bash -c {shlex.quote(code)} -- {given}"


def _moved(text: str) -> str:
    """Folders of a machine as folders in the task's folder.

    >>> _moved("cat /root/log /usr/bin/env")
    'cat /work/workspace/root/log /usr/bin/env'
    """
    return _MOVED.sub(rf"{FOLDER}/\1", text)


def _scripts(given: Any, folder: Path, where: str) -> list[Script | None]:
    """Scripts as a list; None where an example stands."""
    if given is None:
        return []
    found: list[Script | None] = []
    for one in given if isinstance(given, list) else [given]:
        if one is None:
            found.append(None)
        elif isinstance(one, str):
            found.append(("bash", _moved(one)))
        elif isinstance(one, dict) and isinstance(one.get("code", one.get("file")), str):
            code = one["code"] if "code" in one else _read(folder / one["file"], where)
            found.append((str(one.get("language", "bash")), _moved(code)))
        else:
            raise DataError(f"{where}: a script is text, or has 'code' or 'file': {one!r:.60}")
    return found


def _read(path: Path, where: str) -> str:
    if not path.is_file():
        raise DataError(f"{where}: there is no script {path}: give the folder of scripts")
    return read_text(path)


def _match(evaluation: Mapping[str, Any]) -> Mapping[str, Any] | None:
    match = evaluation.get("match")
    if isinstance(match, dict):
        return {**match, "answer": match.get("answer", "")} if "regex" not in match else match
    return None if match is None else {"answer": str(match), "strip": True}
