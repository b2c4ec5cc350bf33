"""The program that runs a repository's own tests in the grading sandbox, each file in a process.

Standard library only (and pytest, where it is asked for): the text of this file is itself the
program (see judging.py). What is asked comes on stdin, and in a second line, read when nothing but
this program is left, the name of the file that outcomes go to: passed, failed or skipped; a test
that did not come to its end has none.

What it is not: proof. A test shares its process with the code that it tests. Exits and forged
results earn nothing; what replaces this program's parts in memory is found by another run, in which
all tests have to fail (judging.py).
"""

import ctypes
import importlib.util
import inspect
import json
import os
import signal
import sys
import unittest
from collections.abc import Callable
from typing import Any

PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 4, 36

Outcomes = dict[str, str]


def run_all() -> None:
    _control(PR_SET_DUMPABLE, 0)  # nothing of the same user reads its memory or its descriptors
    _control(PR_SET_CHILD_SUBREAPER, 1)  # what a test leaves running is a child, to be ended
    asked = json.loads(_line())
    run = _run_pytest if asked["runner"] == "pytest" else _run_plain
    if asked["runner"] == "pytest":
        import pytest  # noqa: F401 - before anything of the repository can take its name
    outcomes: Outcomes = {}
    for path, names in asked["tests"].items():
        outcomes |= _apart(run, path, names)
        _end_children()
    with open(_line(), "x") as file:
        json.dump(outcomes, file)


def _control(option: int, value: int) -> None:
    if ctypes.CDLL(None).prctl(option, value, 0, 0, 0) != 0:
        raise OSError(f"prctl({option}) failed")


def _line() -> str:
    """A line of stdin, and nothing beyond it: tests are forks of this process."""
    found = bytearray()  # bytes would be copied for each letter: a suite may have 10,000 names
    while not found.endswith(b"\n"):
        found += os.read(0, 1)
    return found.decode().rstrip("\n")


def _end_children() -> None:
    while True:
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{name}/stat") as file:
                    parent = int(file.read().rpartition(")")[2].split()[1])
                if parent == os.getpid():
                    os.kill(int(name), signal.SIGKILL)
            except (FileNotFoundError, ProcessLookupError):
                continue
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _apart(run: Callable[[str, list[str]], Outcomes], path: str, names: list[str]) -> Outcomes:
    """The outcomes of a file, run in a process of its own; none if that did not end as it should:
    it shows a number that it was given."""
    token = os.urandom(16).hex()
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(reading)
        _silence()
        _control(PR_SET_DUMPABLE, 1)
        for place in ("src", ""):
            sys.path.insert(0, os.path.join(os.getcwd(), place) if place else os.getcwd())
        found = run(path, names)
        os.write(writing, json.dumps([token, found]).encode() + b"\n")
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as file:
        said = file.readline()  # not to the end: what a test leaves running may hold it open
    _, status = os.waitpid(process, 0)
    try:
        shown, outcomes = json.loads(said)
    except (ValueError, TypeError):
        return {}
    return dict(outcomes) if shown == token and status == 0 else {}


def _silence() -> None:
    """Discard what tests print: nothing reads it, and it could be more than is allowed."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)


def _run_plain(path: str, names: list[str]) -> Outcomes:
    outcomes: Outcomes = {}
    for name, test in _found(path, names).items():
        outcomes[f"{path}::{name}"] = _outcome(test)
    return outcomes


def _found(path: str, names: list[str]) -> dict[str, Any]:
    module = path[:-3].replace("/", ".")
    if importlib.util.find_spec(module.rpartition(".")[0] or "os") is None:
        sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
        module = module.rpartition(".")[2]
    found: dict[str, Any] = {}
    for name, value in vars(importlib.import_module(module)).items():
        if inspect.isclass(value) and issubclass(value, unittest.TestCase):
            for method in unittest.defaultTestLoader.getTestCaseNames(value):
                found[f"{name}::{method}"] = value(method)
        elif inspect.isclass(value) and name.startswith("Test"):
            for method, function in vars(value).items():
                if method.startswith("test") and _is_plain(function, 1):
                    found[f"{name}::{method}"] = _of_class(value, method)
        elif name.startswith("test") and _is_plain(value, 0):
            found[name] = value
    return found if "*" in names else {name: found[name] for name in names if name in found}


def _is_plain(function: Any, arguments: int) -> bool:
    if not inspect.isfunction(function) or inspect.iscoroutinefunction(function):
        return False  # a call of the latter runs nothing, and so never fails
    needed = [
        one
        for one in inspect.signature(function).parameters.values()
        if one.default is inspect.Parameter.empty
    ]
    return len(needed) == arguments


def _of_class(owner: type, method: str) -> Callable[[], object]:
    def call() -> object:
        return getattr(owner(), method)()

    return call


def _outcome(test: Any) -> str:
    if isinstance(test, unittest.TestCase):
        result = unittest.TestResult()
        unittest.TestSuite([test]).run(result)  # with what its class and module set up
        if result.skipped:
            return "skipped"
        return "passed" if result.testsRun == 1 and result.wasSuccessful() else "failed"
    try:
        test()
    except unittest.SkipTest:
        return "skipped"
    except Exception:  # noqa: BLE001 - a test's failure is its result
        return "failed"
    return "passed"


class _Chosen:
    """pytest's plugin that runs the tests that are asked for, and writes down how each ended, worst
    of its three phases."""

    def __init__(self, wanted: set[str]) -> None:
        self.wanted = wanted
        self.outcomes: Outcomes = {}

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        if self.wanted:
            items[:] = [item for item in items if item.nodeid in self.wanted]

    def pytest_runtest_logreport(self, report: Any) -> None:
        before = self.outcomes.get(report.nodeid, "")
        if report.outcome != "passed" or (report.when == "call" and before != "failed"):
            self.outcomes[report.nodeid] = report.outcome


def _run_pytest(path: str, names: list[str]) -> Outcomes:
    import pytest

    wanted = set() if "*" in names else {f"{path}::{name}" for name in names}
    options = ["-q", "-p", "no:cacheprovider", "-o", "addopts=", "--rootdir", os.getcwd()]
    chosen = _Chosen(wanted)
    pytest.main([*options, path], plugins=[chosen])
    return chosen.outcomes
