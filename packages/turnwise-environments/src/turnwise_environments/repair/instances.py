"""Repositories in SWE-bench's format: a record names a repository, a commit, an issue and tests.

A record has `instance_id`, `repo`, `base_commit`, `problem_statement`, `patch`, `test_patch`,
`FAIL_TO_PASS` and `PASS_TO_PASS` (lists, or JSON of lists). `bug`, which SWE-bench does not have,
is a patch that is applied on top of the commit: `turnwise inject` writes such records. Repositories
are the user's own clones; nothing is fetched.
"""

import io
import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Literal

from dulwich.index import IndexEntry, commit_tree, write_index_dict
from dulwich.object_format import DEFAULT_OBJECT_FORMAT
from dulwich.object_store import MemoryObjectStore
from dulwich.objects import Blob, Commit
from dulwich.pack import SHA1Writer, write_pack_index_v2, write_pack_objects

from turnwise.environments.tasksets import TaskFile, TaskSet
from turnwise.errors import DataError, InfrastructureError, ToolError
from turnwise.types import Task
from turnwise_environments.common import check_texts, identity
from turnwise_environments.repair.judging import plain_name
from turnwise_sandbox.tools.patches import patched
from turnwise_sandbox.tools.workspace import MAX_BYTES, Entry, Kind

AUTHOR = b"turnwise <turnwise@localhost> 946684800 +0000"
CONFIG = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n"
USER = "[user]\n\tname = agent\n\temail = agent@localhost\n"
BRANCH = "refs/heads/main"
SECONDS = 60.0
"""The most seconds that a call of git may take."""


def git_folder(entries: Mapping[str, Entry]) -> dict[str, Entry]:
    """The entries below `.git` of a repository with one commit of these files and links."""
    store, index = MemoryObjectStore(), dict[bytes, IndexEntry]()
    for path, entry in entries.items():
        if entry.kind != "folder":
            blob = Blob.from_string(entry.content)
            store.add_object(blob)
            # Times and sizes are 0: git looks at the files themselves then.
            row = IndexEntry(0, 0, 0, 0, _mode(entry), 0, 0, 0, blob.id)
            index[path.encode(errors="surrogateescape")] = row
    tree = commit_tree(store, [(name, row.sha, row.mode) for name, row in index.items()])
    commit = Commit.from_string(
        b"tree %s\nauthor %s\ncommitter %s\n\nThe state at hand\n" % (tree, AUTHOR, AUTHOR)
    )
    store.add_object(commit)
    name, pack, pack_index = _packed(store)
    made = {
        "HEAD": b"ref: %s\n" % BRANCH.encode(),
        "config": (CONFIG + USER).encode(),
        "index": _written(index),
        f"objects/pack/pack-{name}.idx": pack_index,
        f"objects/pack/pack-{name}.pack": pack,
        BRANCH: commit.id + b"\n",
    }
    return {f".git/{path}": Entry(content=content) for path, content in made.items()}


def _mode(entry: Entry) -> int:
    if entry.kind == "link":
        return 0o120000
    return 0o100755 if entry.mode & 0o100 else 0o100644


def _packed(store: MemoryObjectStore) -> tuple[str, bytes, bytes]:
    pack, index = io.BytesIO(), io.BytesIO()
    # Sorted and without deltas: the same bytes for the same files, 0.1 ms for each of them.
    objects = [store[name] for name in sorted(store)]
    places, checksum = write_pack_objects(
        pack, objects, DEFAULT_OBJECT_FORMAT, deltify=False, compression_level=1
    )
    write_pack_index_v2(index, sorted((name, *place) for name, place in places.items()), checksum)
    return checksum.hex(), pack.getvalue(), index.getvalue()


def _written(index: Mapping[bytes, IndexEntry]) -> bytes:
    content = io.BytesIO()
    writer = SHA1Writer(content)
    write_index_dict(writer, index, version=2)
    writer.write_sha()
    return content.getvalue()


@lru_cache(maxsize=8)
def files_at(repository: Path, commit: str) -> Mapping[str, Entry]:
    """The files and links of a commit. Raises InfrastructureError if git fails or is too slow."""
    # Not `git archive`: it leaves out and rewrites files as the repository's attributes say.
    rows = (row.partition(b"\t") for row in _git(repository, "ls-tree", "-rz", commit).split(b"\0"))
    blobs = [(*head.split(), path) for head, _, path in rows if b" blob " in head]
    asked = b"".join(name + b"\n" for _, _, name, _ in blobs)
    contents = io.BytesIO(_git(repository, "cat-file", "--batch", given=asked))
    found: dict[str, Entry] = {}
    for mode, _, _, path in blobs:
        size = int(contents.readline().split()[-1])
        kind: Kind = "link" if mode == b"120000" else "file"
        content = contents.read(size)
        found[os.fsdecode(path)] = Entry(kind, content, int(mode, 8) & 0o777)
        contents.readline()
    return found


def check_commit(repository: Path, commit: str, where: str) -> str:
    """The commit's full name. Raises DataError, beginning with `where`, if it is not there."""
    if not repository.is_dir():
        raise DataError(f"{where}: there is no repository {repository}")
    try:
        found = _git(repository, "rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}")
    except InfrastructureError:
        raise DataError(f"{where}: {repository} has no commit {commit}") from None
    return found.decode().strip()


def _git(repository: Path, *words: str, given: bytes = b"") -> bytes:
    # The option is git's way to read another user's repository without a change of settings.
    command = ["git", "-c", f"safe.directory={repository.resolve()}", "-C", str(repository), *words]
    try:
        done = subprocess.run(
            command, input=given, capture_output=True, timeout=SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InfrastructureError(f"git cannot be run: {error}") from None
    if done.returncode:
        reason = done.stderr.decode(errors="replace").strip()
        raise InfrastructureError(f"git {words[0]} in {repository}: {reason}")
    return done.stdout


KIND = "suite"
TEXTS = ("instance_id", "repo", "base_commit", "problem_statement", "patch")
ASKED = (
    "\n\nThe repository is the current folder. Change it so that this is solved, and answer when "
    "that is done. Tests judge it; changes of tests do not count."
)


@dataclass(frozen=True)
class InstanceFile(TaskFile):
    """The instances of a file in SWE-bench's format. Clones and packages are yours."""

    repositories: str = field(kw_only=True)
    """The folder of the clones: `owner/name` is at `owner/name`, `owner__name` or `name`."""
    runner: Literal["plain", "pytest"] = "plain"
    """The runner of the tests: unittest (`plain`), or pytest."""

    def load(self) -> TaskSet:
        """Raises DataError, naming file and line or entry, for what is missing: a field, a clone, a
        commit, or a file that a patch changes; and where nothing is left."""
        clones = Path(self.repositories).expanduser()
        return TaskSet.read(
            self, lambda record, where: _task(record, clones, self.runner, where), "instances"
        )


def base_files(data: Mapping[str, Any]) -> dict[str, Entry]:
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
    check_texts(record, TEXTS, where)
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
    located = [_located(names, tests, base) for names in (fail, stay)]
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
    name = identity([record["instance_id"], record["repo"], commit, bug])
    info = {"instance": record["instance_id"], "repository": record["repo"]}
    return Task(name, record["problem_statement"].strip() + ASKED, secret, data, info)


def _located(
    names: Sequence[str], tests: Mapping[str, str], base: Mapping[str, Entry]
) -> list[str | None]:
    """Tests as `path::name`: as they are written, below another folder (django's), or found by a
    bare name in the files that the patch for tests changes (sympy's). None for one that is in no
    file, or several."""

    @cache  # thousands of tests stand in few files, and are looked for among thousands
    def below(path: str) -> list[str]:
        return [one for one in {*base, *tests} if one.endswith(f"/{path}")]

    found: list[str | None] = []
    for name in names:
        path, separator, rest = plain_name(name).partition("::")
        if not separator:
            places, rest = [one for one, text in tests.items() if f"def {path}(" in text], path
        else:
            places = [path] if path in tests or path in base else below(path)
        found.append(f"{places[0]}::{rest}" if len(places) == 1 else None)
    return found


def base_or_error(data: Mapping[str, Any], where: str) -> dict[str, Entry]:
    try:
        return base_files(data)
    except ToolError as error:
        raise DataError(f"{where}: 'bug' does not fit the commit: {error}") from None


def _tests(base: Mapping[str, Entry], patch: str, where: str) -> dict[str, str]:
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
