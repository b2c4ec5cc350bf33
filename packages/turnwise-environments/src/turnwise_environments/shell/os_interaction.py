"""Reads tasks in the format of AgentBench's OS interaction, and judges them by their own checks.

A record has `description`, `create.init` (a script), `evaluation.match` (the answer, or a regular
expression) or `evaluation.check` (scripts: each gets the answer and what those before it wrote, and
has to exit with 0; null stands for `evaluation.example`). Scripts are text, or {code or file,
language}; files are below a folder of scripts.

AgentBench has a machine for each task, here there is a folder: /root, /home and the like are
folders in it. The checks run in a second sandbox, in the folder that the agent left; an example
whose output is the right answer runs in the folder as it was at the beginning.
"""

import hashlib
import json
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from turnwise.environments.records import read_each, read_text
from turnwise.environments.tasksets import SOLVED, TaskFile, TaskSet, kept
from turnwise.errors import DataError, NotSupportedError
from turnwise.folders import cache_folder, write_whole
from turnwise.sandbox.result import Status
from turnwise.types import Action, Task, ToolCall
from turnwise_environments import folders
from turnwise_environments.common import check_texts, identity
from turnwise_environments.folders import ROOT, check_place, entries, plain, workspace_of
from turnwise_sandbox.sandbox import Sandbox
from turnwise_sandbox.tools.workspace import Entry

KIND = "checks"
_MOVED = re.compile(
    r"(?<![\w./-])/(root|home|opt|srv|mnt|data|var|tmp|usr)(?![\w.-])"
    r"(?!/(?:bin|sbin|lib|lib32|lib64|include|local|share)\b)"
)
BEGIN = f"export HOME={ROOT}/root; mkdir -p root; cd root\n"
"""Lines before every command, which begin where a user of AgentBench's machines is."""
CLEAN = f"{folders.CLEAN}mkdir -p {ROOT}/root; cd {ROOT}/root\n"
_HOME = re.compile(r"(?<![\w./~=-])~(?=/|\s*$|\s*[;|&)>\n\"'])|\$HOME\b|\$\{HOME\}")
LANGUAGES = ("bash", "python")
WEAKNESS = (
    "a check that runs a program which the agent left believes what that program prints and how "
    "it ends"
)

VERSION = 1
"""The version of how a record is tried: what the cache has under another one is not used."""

Script = tuple[str, str]
"""Language and code."""


@dataclass(frozen=True)
class RecordFile(TaskFile):
    """The tasks of a file that can be done in a folder. The files of their scripts are below the
    folder `scripts`."""

    scripts: str = "."

    def load(self, sandbox: Sandbox) -> TaskSet:
        """Try them in the sandbox, side by side; what a record came to is cached. `constant` is the
        success of the one answer that is right most often, given to every task at once. Raises
        DataError for a file of which nothing is left."""
        scripts = Path(self.scripts).expanduser()
        drafts, broken = read_each(self.path, lambda record, at: _draft(record, scripts, at))
        check_place(sandbox)
        with ThreadPoolExecutor(sandbox.settings.concurrency) as pool:
            tried = list(pool.map(lambda draft: _kept(draft, sandbox), drafts))
        tasks, left_out = kept(tried, self.path, "tasks")
        scores = SOLVED | {"constant": _constant(list({task.id: task for task in tasks}.values()))}
        return TaskSet.shuffled(tasks, self.heldout_share, scores, [*left_out, *broken])


def judge(
    sandbox: Sandbox, task: Task, left: Mapping[str, Entry], answer: str | None
) -> tuple[bool, str]:
    secret = task.secret
    if secret["match"] is not None:
        right = answer is not None and is_match(secret["match"], answer)
        return right, f"answered {answer!r}"
    said = [str(answer)]
    for script in secret["check"]:
        # An example's output is the right answer: the agent's folder has no part in it.
        place = entries(task) if script is None else left
        status, output = _run(sandbox, place, script or secret["example"], said, CLEAN)
        if status != 0:
            return False, f"a check ended with {status}: {output[-200:]}"
        said.append(output)
    return True, ""


def example_actions(sandbox: Sandbox, task: Task) -> Sequence[Action]:
    """The answer that is compared; else what the example does. Raises NotSupportedError for a
    pattern of answers, and for a record without an example."""
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


@dataclass(frozen=True)
class _Draft:
    """A record as it was read: nothing of it has been run."""

    description: str
    init: Sequence[Script | None]
    secret: Mapping[str, Any]
    labels: str
    left_out: str
    """Why it cannot be done here, if that is known without trying."""


def _draft(record: Mapping[str, Any], scripts: Path, where: str) -> _Draft:
    check_texts(record, ("description",), where)
    evaluation = record.get("evaluation")
    if not isinstance(evaluation, dict) or (
        evaluation.get("match") is None and not evaluation.get("check")
    ):
        raise DataError(f"{where}: 'evaluation' must have 'match' or 'check'")
    create = record.get("create")
    create = create if isinstance(create, dict) else {}
    started = bool(record.get("start"))
    init = [] if started else _scripts(create.get("init"), scripts, where)
    check = [] if started else _scripts(evaluation.get("check"), scripts, where)
    examples = [] if started else _scripts(evaluation.get("example"), scripts, where)
    if len(examples) > 1:
        raise DataError(f"{where}: 'example' has to be one script")
    example = examples[0] if examples else None
    foreign = any(script[0] not in LANGUAGES for script in (*init, *check, example) if script)
    if None in check and example is None:
        raise DataError(f"{where}: 'check' refers to an example, and there is none")
    match = _match(evaluation, where)
    return _Draft(
        description=_moved(record["description"].strip()),
        init=init,
        secret={"kind": KIND, "match": match, "check": check, "example": example},
        labels=", ".join(map(str, record.get("labels") or ())),
        left_out="a program runs beside it"
        if started
        else "a language that is not run here"
        if foreign
        else "",
    )


def _kept(draft: _Draft, sandbox: Sandbox) -> Task | str:
    """The task of a draft, or why it cannot be done here; what was found out by trying is kept."""
    if draft.left_out:
        return draft.left_out
    content = json.dumps([asdict(draft), sandbox.find_tier(), sys.version_info[:2], CLEAN, VERSION])
    name = hashlib.sha256(content.encode()).hexdigest()
    file = cache_folder() / "os_interaction" / f"{name}.json"
    with suppress(OSError, ValueError):  # it is not there, or damaged
        return _task(draft, json.loads(file.read_text()))
    folder = _tried(draft, sandbox)
    if isinstance(folder, str):  # perhaps for lack of time: tried again the next time
        return folder
    with suppress(OSError):  # a read-only home: slower, not broken
        write_whole(file, json.dumps(folder).encode())
    return _task(draft, folder)


def _tried(draft: _Draft, sandbox: Sandbox) -> list[list[object]] | str:
    folder: Mapping[str, Entry] | None = {}
    for script in draft.init:
        folder = _prepared(sandbox, folder or {}, script) if script else folder
        if folder is None:
            return "its folder cannot be made here"
    made = plain(folder or {})
    return made if _is_solved(sandbox, _task(draft, made)) else "its own example does not pass here"


def _task(draft: _Draft, folder: list[list[object]]) -> Task:
    prompt, data = draft.description, {"folder": folder}
    return Task(identity([prompt, data]), prompt, draft.secret, data, {"labels": draft.labels})


def _constant(tasks: Sequence[Task]) -> float:
    matches = [task.secret["match"] for task in tasks if task.secret["match"] is not None]
    answers = {str(match["answer"]) for match in matches if "answer" in match}
    solved = [sum(is_match(match, answer) for match in matches) for answer in answers]
    return max(solved, default=0) / len(tasks)


def is_match(match: Mapping[str, Any], answer: str) -> bool:
    given = answer.strip() if match.get("strip", True) else answer
    if "regex" in match:
        return re.search(str(match["regex"]), given) is not None
    return given == str(match["answer"])


def _is_solved(sandbox: Sandbox, task: Task) -> bool:
    example = task.secret["example"]
    if example is None or task.secret["match"] is not None:
        return True
    workspace = workspace_of(sandbox, entries(task))
    result, _ = workspace.run(_command(example, []))
    return judge(sandbox, task, workspace.entries, result.stdout.text.strip())[0]


def _prepared(
    sandbox: Sandbox, folder: Mapping[str, Entry], script: Script
) -> Mapping[str, Entry] | None:
    workspace = workspace_of(sandbox, folder)
    result, problem = workspace.run(_command(script, []))
    return None if problem or result.status is not Status.OK else workspace.entries


def _run(
    sandbox: Sandbox,
    folder: Mapping[str, Entry],
    script: Script,
    words: Sequence[str],
    begin: str = BEGIN,
) -> tuple[int, str]:
    """Exit status and output of a script; 124 if it was stopped at a limit."""
    result, _ = workspace_of(sandbox, folder).run(_command(script, words, begin))
    status = 124 if result.exit_status is None else result.exit_status
    return status, result.stdout.text


def _command(script: Script, words: Sequence[str], begin: str = BEGIN) -> str:
    language, code = script
    given = shlex.join(word.replace("\0", "") for word in words)
    if begin == CLEAN:
        code = _HOME.sub(f"{ROOT}/root", code)
    if language == "python":
        # Modules that the agent left, among a user's own or in the folder, are not found.
        return f"{begin}python3 -s -P -c {shlex.quote(code)} {given}"
    return f"{begin}bash -c {shlex.quote(code)} -- {given}"


def _moved(text: str) -> str:
    """Folders of a machine as folders in the task's folder.

    >>> _moved("cat /root/log /usr/bin/env")
    'cat /work/workspace/root/log /usr/bin/env'
    """
    return _MOVED.sub(rf"{ROOT}/\1", text)


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


def _match(evaluation: Mapping[str, Any], where: str) -> Mapping[str, Any] | None:
    match = evaluation.get("match")
    if not isinstance(match, dict):
        return None if match is None else {"answer": str(match), "strip": True}
    if "regex" not in match:
        return {**match, "answer": match.get("answer", "")}
    try:
        re.compile(str(match["regex"]))
    except (re.error, RecursionError) as error:
        raise DataError(f"{where}: 'match' has a pattern that is none: {error}") from None
    return match
