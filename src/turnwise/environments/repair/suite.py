"""The program that runs a repository's own tests in the grading sandbox, each file in a process.

Standard library only (and pytest, where it is asked for): the text of this file is itself the
program (see judging.py). What is asked comes on stdin, outcomes go to a file by test:
passed, failed or skipped; a test that did not come to its end has none.

What it is not: proof. A test shares its process with the code that it tests. Exits, patched test
frameworks (a test that has to fail runs along) and printed results earn nothing; code that looks
for this program in memory can deceive it.
"""

import importlib.util
import inspect
import json
import os
import sys
import unittest
from collections.abc import Callable
from typing import Any

OUTCOMES = "outcomes.by.turnwise.json"
CANARY = "test_canary_by_turnwise.py"
"""A file with one test, which has to fail."""
_CANARY_TEXT = "def test_canary():\n    raise AssertionError('this one has to fail')\n"
MISUSED = "a test that has to fail did not"

Outcomes = dict[str, str]


def run_all() -> None:
    """Run what stdin asks for: files with the names of their tests, `*` for all of them."""
    asked = json.load(sys.stdin)
    run = _run_pytest if asked["runner"] == "pytest" else _run_plain
    if asked["runner"] == "pytest":
        import pytest  # noqa: F401 - before anything of the repository can take its name
    outcomes: Outcomes = {}
    for path, names in asked["tests"].items():
        outcomes |= _apart(run, path, names)
    with open(OUTCOMES, "x") as file:
        json.dump(outcomes, file)


def _apart(run: Callable[[str, list[str]], Outcomes], path: str, names: list[str]) -> Outcomes:
    """The outcomes of a file, run in a process of its own; none if that did not end as it should.

    The process shows a number that it was given to say that it came to its own end.
    """
    token = os.urandom(16).hex()
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(reading)
        _silence()
        for place in ("src", ""):
            sys.path.insert(0, os.path.join(os.getcwd(), place) if place else os.getcwd())
        found = run(path, names)
        os.write(writing, json.dumps([token, found]).encode())
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as file:
        said = file.read()
    _, status = os.waitpid(process, 0)
    try:
        shown, outcomes = json.loads(said)
    except (ValueError, TypeError):
        return {}
    return dict(outcomes) if shown == token and status == 0 else {}


def _silence() -> None:
    """What tests print is of no use here, and could be more than is allowed."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)


def _run_plain(path: str, names: list[str]) -> Outcomes:
    """unittest's test cases, and functions `test*` without arguments, also in classes `Test*`."""
    outcomes: Outcomes = {}
    for name, test in _found(path, names).items():
        outcomes[f"{path}::{name}"] = _outcome(test)

    class Canary(unittest.TestCase):
        def test_canary(self) -> None:
            self.assertEqual("fails", "passes")  # noqa: PT009 - this may have been patched

    if _outcome(Canary("test_canary")) != "failed":
        return dict.fromkeys(outcomes, MISUSED)
    return outcomes


def _found(path: str, names: list[str]) -> dict[str, Any]:
    """Tests of a file by name, in its order: test cases, and plain functions."""
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
    if not inspect.isfunction(function):
        return False
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
        test.run(result)
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


class _Collector:
    """pytest's plugin that writes down how each test ended, worst of its three phases."""

    def __init__(self) -> None:
        self.outcomes: Outcomes = {}

    def pytest_runtest_logreport(self, report: Any) -> None:
        before = self.outcomes.get(report.nodeid, "")
        if report.outcome != "passed" or (report.when == "call" and before != "failed"):
            self.outcomes[report.nodeid] = report.outcome


def _run_pytest(path: str, names: list[str]) -> Outcomes:
    import pytest

    with open(CANARY, "w") as file:
        file.write(_CANARY_TEXT)
    wanted = [path] if "*" in names else [f"{path}::{name}" for name in names]
    options = ["-q", "-p", "no:cacheprovider", "-o", "addopts=", "--rootdir", os.getcwd()]
    collector = _Collector()
    pytest.main([*options, *wanted, CANARY], plugins=[collector])
    outcomes = collector.outcomes
    if outcomes.pop(f"{CANARY}::test_canary", "") != "failed":
        return dict.fromkeys(outcomes, MISUSED)
    return outcomes
