"""Puts bugs into a user's repository that has tests: records in SWE-bench's format, a bug in each.

A small change of a source file becomes a record only if it makes some of the passing tests fail,
and not all of them. The repository itself is read, and not changed.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from turnwise.errors import DataError
from turnwise.seeds import derive
from turnwise_environments.repair.environment import unified
from turnwise_environments.repair.instances import check_commit, files_at
from turnwise_environments.repair.judging import TEST_FOLDERS, run_suite
from turnwise_environments.repair.mutations import mutants
from turnwise_sandbox.artefacts import refusal
from turnwise_sandbox.sandbox import Sandbox

TEST_FILES = ("test_*.py", "*_test.py", "tests.py")
SHOWN = 5
"""Failing tests that the issue names."""


def inject(repository: Path, sandbox: Sandbox, runner: str, count: int) -> Iterator[dict[str, Any]]:
    """Up to `count` records, the same for the same commit: HEAD's files, whose tests are run once
    as they are and once for each change that is tried. Raises DataError for a folder that is not a
    git repository, and where no test passes unchanged."""
    commit = check_commit(repository, "HEAD", "inject")
    files = {
        path: entry.content
        for path, entry in files_at(repository, commit).items()
        if entry.kind == "file"
    }
    everything = [f"{path}::*" for path in sorted(files) if _is_test(path)]
    outcomes, problem = run_suite(sandbox, files, everything, runner)
    passing = [name for name, outcome in outcomes.items() if outcome == "passed"]
    if not passing:
        reason = f" ({problem})" if problem else ""
        raise DataError(
            f"{repository}: none of the tests in {len(everything)} files passes as it is{reason}: "
            "give the packages that they need, or another runner"
        )
    made = 0
    for path, after in _changes(files):
        if made == count:
            return
        before = files[path].decode()
        broken = {**files, path: after.encode()}
        found, _ = run_suite(sandbox, broken, everything, runner)
        failing = [name for name in passing if found.get(name) != "passed"]
        if failing and len(failing) < len(passing):
            made += 1
            bug, patch = unified(path, before, after), unified(path, after, before)
            yield _record(repository.resolve().name, commit, bug, patch, failing, passing)


def _changes(files: Mapping[str, bytes]) -> Iterator[tuple[str, str]]:
    """All small changes of source files, as a path and its new text, shuffled by their content."""
    found: list[tuple[int, str, int]] = []
    changed: dict[str, Sequence[str]] = {}
    for path, content in files.items():
        if not path.endswith(".py") or _is_test(path) or refusal(path):
            continue
        if set(path.split("/")[:-1]) & set(TEST_FOLDERS):
            continue
        try:
            text = content.decode()
        except UnicodeDecodeError:
            continue
        changed[path] = mutants(text)
        keys = (derive("inject", path, mutant) for mutant in changed[path])
        found += [(key, path, place) for place, key in enumerate(keys)]
    for _, path, place in sorted(found):
        yield path, changed[path][place]


def _is_test(path: str) -> bool:
    name = path.rpartition("/")[2]
    return any(fnmatchcase(name, pattern) for pattern in TEST_FILES)


def _record(
    name: str, commit: str, bug: str, patch: str, failing: list[str], passing: list[str]
) -> dict[str, Any]:
    told = "\n".join(f"- {one}" for one in failing[:SHOWN])
    more = f"\n- and {len(failing) - SHOWN} more" if len(failing) > SHOWN else ""
    return {
        "instance_id": f"{name}-{hashlib.sha256(bug.encode()).hexdigest()[:12]}",
        "repo": name,
        "base_commit": commit,
        "problem_statement": f"These tests passed before, and fail now:\n\n{told}{more}",
        "bug": bug,
        "patch": patch,
        "test_patch": "",
        "FAIL_TO_PASS": failing,
        "PASS_TO_PASS": [one for one in passing if one not in failing],
    }
