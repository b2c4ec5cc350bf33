"""Repositories in SWE-bench's format: a record names a repository, a commit, an issue and tests.

A record has `instance_id`, `repo`, `base_commit`, `problem_statement`, `patch`, `test_patch`,
`FAIL_TO_PASS` and `PASS_TO_PASS` (lists, or JSON of lists). `bug`, which SWE-bench does not have,
is a patch that is applied on top of the commit: `turnwise inject` writes such records. Repositories
are the user's own clones; nothing is fetched. Not here: what the code imports (the environment's
`packages`), and how tests are run (`suite.py`).
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from turnwise.environments.tasksets import TaskFile, TaskSet
from turnwise.errors import DataError, ToolError
from turnwise.types import Task
from turnwise_environments.repair.git import check_commit, files_at
from turnwise_environments.repair.judging import plain_name
from turnwise_sandbox.tools.patches import patched
from turnwise_sandbox.tools.workspace import MAX_BYTES, Entry

KIND = "suite"
TEXTS = ("instance_id", "repo", "base_commit", "problem_statement", "patch")
ASKED = (
    "\n\nThe repository is the current folder. Change it so that this is solved, and answer when "
    "that is done. Tests judge it; changes of tests do not count."
)


@dataclass(frozen=True)
class InstanceFile(TaskFile):
    """The instances of a .jsonl or .json file in SWE-bench's format. Left out are repositories that
    are too large, and tests whose names do not give their file."""

    repositories: str = field(kw_only=True)
    """The folder of the clones: that of `owner/name` is at `owner/name`, `owner__name` or `name` in
    it."""
    runner: Literal["plain", "pytest"] = "plain"
    """The runner of the tests: unittest (`plain`), or pytest."""

    def load(self) -> TaskSet:
        """Read them. Raises DataError, naming file and line or entry, for what is missing: a field,
        a clone, a commit, or a file that a patch changes; and for a file of which nothing is
        left."""
        clones = Path(self.repositories).expanduser()
        return TaskSet.read(
            self, lambda record, where: _task(record, clones, self.runner, where), "instances"
        )


def base_files(data: Mapping[str, Any]) -> dict[str, Entry]:
    """The files that an episode begins with."""
    if "files" in data:
        return {path: Entry(content=text.encode()) for path, text in data["files"].items()}
    return apply(files_at(Path(data["repository"]), data["commit"]), data["bug"])


def apply(entries: Mapping[str, Entry], patch: str) -> dict[str, Entry]:
    """The files after a patch. Raises ToolError if it does not fit."""
    files = dict(entries)
    if not patch.strip():
        return files
    texts = {
        path: entry.content.decode(errors="surrogateescape")
        for path, entry in files.items()
        if entry.kind == "file"
    }
    for path, text in patched(texts, patch).items():
        if text is None:
            del files[path]
        else:
            content = text.encode(errors="surrogateescape")
            files[path] = replace(files.get(path, Entry()), content=content)
    return files


def _task(record: Mapping[str, Any], repositories: Path, runner: str, where: str) -> Task | str:
    """The task of a record, or why it cannot be done here."""
    for name in TEXTS:
        if not isinstance(record.get(name), str) or not record[name].strip():
            raise DataError(f"{where}: {name!r} must be there, a string that is not empty")
    fail = _names(record, "FAIL_TO_PASS", where)
    stay = _names(record, "PASS_TO_PASS", where)
    if not fail:
        raise DataError(f"{where}: 'FAIL_TO_PASS' is empty: there would be nothing to repair")
    repository = _clone(repositories, record["repo"], where)
    commit = check_commit(repository, record["base_commit"], where)
    bug = str(record.get("bug") or "")
    data = {"repository": str(repository), "commit": commit, "bug": bug}
    base = base_or_error(data, where)
    if sum(len(entry.content) for entry in base.values()) > MAX_BYTES:
        return f"the repository is larger than {MAX_BYTES >> 20} MiB"
    tests = _tests(base, str(record.get("test_patch") or ""), where)
    located = [[_located(name, tests, base) for name in names] for names in (fail, stay)]
    if None in [*located[0], *located[1]]:
        return "the file of a test is not in its name"
    secret = {
        "kind": KIND,
        "fail_to_pass": located[0],
        "pass_to_pass": located[1],
        "tests": tests,
        "runner": runner,
        "patch": record["patch"],
    }
    content = json.dumps([record["instance_id"], record["repo"], commit, bug])
    identity = hashlib.sha256(content.encode()).hexdigest()[:16]
    info = {"instance": record["instance_id"], "repository": record["repo"]}
    return Task(identity, record["problem_statement"].strip() + ASKED, secret, data, info)


def _located(name: str, tests: Mapping[str, str], base: Mapping[str, Entry]) -> str | None:
    """A test as `path::name`: as it is written, below another folder (django's), or found by its
    bare name in the files that the patch for tests changes (sympy's). None if it is in no file, or
    could be in several."""
    path, separator, rest = plain_name(name).partition("::")
    if not separator:
        places, rest = [one for one, text in tests.items() if f"def {path}(" in text], path
    elif path in tests or path in base:
        places = [path]
    else:
        places = [one for one in {*base, *tests} if one.endswith(f"/{path}")]
    return f"{places[0]}::{rest}" if len(places) == 1 else None


def base_or_error(data: Mapping[str, Any], where: str) -> dict[str, Entry]:
    """Read as `base_files` does; raise DataError for a patch that does not fit."""
    try:
        return base_files(data)
    except ToolError as error:
        raise DataError(f"{where}: 'bug' does not fit the commit: {error}") from None


def _tests(base: Mapping[str, Entry], patch: str, where: str) -> dict[str, str]:
    """The files that the patch for tests changes, as it leaves them."""
    try:
        after = apply(base, patch)
    except ToolError as error:
        raise DataError(f"{where}: 'test_patch' does not fit the commit: {error}") from None
    changed = {path for path, entry in after.items() if base.get(path) != entry}
    return {path: after[path].content.decode(errors="replace") for path in changed}


def _names(record: Mapping[str, Any], field: str, where: str) -> list[str]:
    names = record.get(field, [])
    if isinstance(names, str):
        try:
            names = json.loads(names)
        except (json.JSONDecodeError, RecursionError):
            names = None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise DataError(f"{where}: {field!r} must be a list of tests, or JSON of one")
    return names


def _clone(repositories: Path, name: str, where: str) -> Path:
    places = [name, name.replace("/", "__"), name.rpartition("/")[2]]
    for place in places:
        if (repositories / place).is_dir():
            return (repositories / place).resolve()
    tried = ", ".join(str(repositories / place) for place in dict.fromkeys(places))
    raise DataError(f"{where}: there is no clone of {name!r}; tried {tried}")
