"""Whether a repair is right: the files that were left, judged in a second sandbox.

Made packages and single programs are judged by calls, whose expected values never leave the host.
A repository with tests of its own is judged by these (`suite.py`): all of fail-to-pass and of
pass-to-pass have to pass, one that is missing has failed, and one that is skipped has failed too
unless it only had to go on passing. Test files, and files that run by themselves (conftest.py,
pyproject.toml, ...), are the repository's, whatever the agent made of them.

A suite shares its process with the code that it tests, so that code can replace what judges it. It
does so for a copy of the suite too, in which each test ends in assertions that cannot hold: what
`passes` there proves nothing. Code that reads the tests can still distinguish the copy.
"""

import ast
import inspect
import json
import re
import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from turnwise.sandbox.result import Status
from turnwise_environments.code.tasks import as_json
from turnwise_environments.repair import suite
from turnwise_sandbox.artefacts import refusal
from turnwise_sandbox.calls import decode
from turnwise_sandbox.grading import Case, grade_function, select
from turnwise_sandbox.sandbox import Sandbox
from turnwise_sandbox.tools.workspace import Entry

_FAILING = {
    "1, 2": "assertEqual assertGreater assertGreaterEqual",
    "2, 1": "assertLess assertLessEqual",
    "1, 1": "assertNotEqual",
    "False": "assertTrue",
    "True": "assertFalse",
    "1, None": "assertIs",
    "None, None": "assertIsNot",
    "1": "assertIsNone",
    "None": "assertIsNotNone",
    "1, []": "assertIn",
    "1, [1]": "assertNotIn",
    "1, str": "assertIsInstance",
    "1, int": "assertNotIsInstance",
    "1.0, 2.0": "assertAlmostEqual",
    "1.0, 1.0": "assertNotAlmostEqual",
    "'a', 'b'": "assertRegex assertMultiLineEqual",
    "'a', 'a'": "assertNotRegex",
    "[1], [2]": "assertCountEqual assertListEqual assertSequenceEqual",
    "(1,), (2,)": "assertTupleEqual",
    "{1: 1}, {}": "assertDictEqual",
    "{1}, {2}": "assertSetEqual",
    "ValueError, int": "assertRaises raises",
    "ValueError, 'a', int": "assertRaisesRegex",
    "'fails'": "fail",
}
FAILING = {name: words for words, names in _FAILING.items() for name in names.split()}
"""unittest's and pytest's assertions, with arguments for which they have to raise."""
OWNERS = {"raises": ("pytest",), "fail": ("pytest", "self", "cls")}
"""Owners of assertions with common names: functions of others by such a name need not raise."""
EXPECTED = ("expectedFailure", "xfail")
"""Decorators of tests for which failing is right."""


def sabotaged(source: str) -> tuple[str, set[str]]:
    """A file of tests that can only fail, and the names of the functions that were changed. A test
    does what it did; then each kind of assertion that it uses is tried on what it cannot accept,
    and the test fails only if all of them raise. Raises SyntaxError for no Python."""
    tree = ast.parse(source)
    changed = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _is_test(node):
            node.body = _failing(node)
            changed.add(node.name)
    return ast.unparse(ast.fix_missing_locations(tree)), changed


def _is_test(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    decorators = " ".join(ast.unparse(one) for one in node.decorator_list)
    return node.name.startswith("test") and not any(one in decorators for one in EXPECTED)


def _failing(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.stmt]:
    lines = ["try: pass", "finally:", "    raised_ = 0"]
    calls = sorted(_assertions(node))
    for call in [*calls, "assert 1 == 2", "raise AssertionError('1 is not 2')"]:
        lines += [
            "    try:",
            f"        {call}",
            "    except BaseException:",
            "        raised_ += 1",
        ]
    lines += [
        f"    if raised_ < {len(calls) + 2}: return",
        "    raise AssertionError('1 is not 2')",
    ]
    (block,) = ast.parse("def test():\n" + "\n".join(f"    {line}" for line in lines)).body
    assert isinstance(block, ast.FunctionDef)
    (whole,) = block.body
    assert isinstance(whole, ast.Try)
    whole.body = node.body
    return [whole]


def _assertions(node: ast.AST) -> Collection[str]:
    called = [one.func for one in ast.walk(node) if isinstance(one, ast.Call)]
    return {
        f"{ast.unparse(function)}({FAILING[function.attr]})"
        for function in called
        if isinstance(function, ast.Attribute)
        and function.attr in FAILING
        and isinstance(function.value, ast.Name)
        and function.value.id in OWNERS.get(function.attr, (function.value.id,))
    }


TOLERANCE = 1e-6
DECEIVED = "it passes even where it cannot"
WEAKNESS = (
    "a suite shares its process with the code that it tests: code that reads the tests as they run "
    "can pass them without doing what they ask for"
)
TEST_FOLDERS = ("test", "tests")
_PROGRAM = inspect.getsource(suite) + "\n\nrun_all()\n"
_CALL = """
import importlib


def call(target, *arguments):
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)(*arguments)
"""
_UNITTEST_NAME = re.compile(r"(?P<method>\w+) \((?P<place>[\w.]+)\)")


@dataclass(frozen=True)
class Judgement:
    """Numbers of tests of each kind that passed."""

    failed_before: tuple[int, int]
    """Passed, of all that did not pass before the repair."""
    passed_before: tuple[int, int]
    detail: str = ""

    @property
    def success(self) -> bool:
        """Whether all passed, and there was one to repair."""
        pairs = (self.failed_before, self.passed_before)
        return all(passed == count for passed, count in pairs) and self.failed_before[1] > 0


def judge_calls(
    sandbox: Sandbox, left: Mapping[str, bytes], sources: Sequence[str], secret: Mapping[str, Any]
) -> Judgement:
    """Make the hidden calls of a made package; `sources` are patterns of the files that count."""
    files, _ = select(without_clashes(left), sources)
    entries = [*secret["fail_to_pass"], *secret["pass_to_pass"]]
    cases = [
        Case((target, *decode(arguments)), decode(expected))
        for target, arguments, expected in entries
    ]
    grade = grade_function(sandbox, {**files, "judged.py": _CALL.encode()}, "judged:call", cases)
    first = len(secret["fail_to_pass"])
    return _judgement(grade.passed[:first], grade.passed[first:], grade.reasons)


def judge_program(
    sandbox: Sandbox, left: Mapping[str, bytes], secret: Mapping[str, Any]
) -> Judgement:
    name = secret["name"]
    files, _ = select(left, [f"{name}.py"])
    files["judged.py"] = as_json(name, name).encode()
    cases = [
        Case(tuple(arguments), expected, tolerance=tolerance)
        for arguments, expected, tolerance in secret["cases"]
    ]
    grade = grade_function(sandbox, files, "judged:call", cases, tolerance=TOLERANCE)
    return _judgement(grade.passed, (), grade.reasons)


def judge_suite(
    sandbox: Sandbox,
    base: Mapping[str, Entry],
    left: Mapping[str, Entry],
    secret: Mapping[str, Any],
) -> Judgement:
    fail, stay = secret["fail_to_pass"], secret["pass_to_pass"]
    tests = {path: text.encode() for path, text in secret["tests"].items()}
    named = [test_file(name) for name in (*fail, *stay)]
    files = graded_files(base, left, {*tests, *named}, tests)
    outcomes, problem = run_suite(sandbox, files, [*fail, *stay], secret["runner"])
    if all(outcomes.get(name) in ("passed", "skipped") for name in (*fail, *stay)):
        outcomes = _believed(sandbox, files, outcomes, secret["runner"])
    fixed = [outcomes.get(name) == "passed" for name in fail]
    kept = [outcomes.get(name) in ("passed", "skipped") for name in stay]
    wrong = [name for name in (*fail, *stay) if outcomes.get(name) != "passed"]
    return _judgement(fixed, kept, [problem, *(f"{name}: {outcomes.get(name)}" for name in wrong)])


def _believed(
    sandbox: Sandbox, files: Mapping[str, bytes], outcomes: Mapping[str, str], runner: str
) -> dict[str, str]:
    """Outcomes, but of tests that do not fail when they are made to."""
    changed: dict[str, bytes] = {}
    names: dict[str, set[str]] = {}
    for path in {test_file(name) for name in outcomes}:
        try:
            text, names[path] = sabotaged(files[path].decode())
        except (SyntaxError, ValueError, RecursionError):
            names[path] = set()  # read by Python itself and not by ast: nothing to compare
            continue
        changed[path] = text.encode()
    passed = [
        name
        for name, outcome in outcomes.items()
        if outcome == "passed" and _function(name) in names[test_file(name)]
    ]
    found, _ = run_suite(sandbox, {**files, **changed}, passed, runner)
    deceived = {name: DECEIVED for name in passed if found.get(name) != "failed"}
    return {**outcomes, **deceived}


def _function(name: str) -> str:
    return plain_name(name).partition("[")[0].rpartition("::")[2]


def graded_files(
    base: Mapping[str, Entry],
    left: Mapping[str, Entry],
    test_files: Iterable[str],
    tests: Mapping[str, bytes],
) -> dict[str, bytes]:
    """The agent's files, but the repository's own where they are tests or run by themselves, with
    the hidden `tests`. A file of the agent's gives way to a folder."""
    kept = set(test_files)
    folders = tuple({f"{folder}/" for path in kept if (folder := _test_folder(path))})

    def is_own(path: str) -> bool:
        return path not in kept and not path.startswith(folders) and not refusal(path)

    files = {path: entry.content for path, entry in left.items() if _is_file(entry, path)}
    own = {path: content for path, content in files.items() if is_own(path)}
    others = {
        path: entry.content
        for path, entry in base.items()
        if _is_file(entry, path) and not is_own(path)
    }
    fixed = {**others, **tests}
    folders_needed = {folder for path in fixed for folder in _folders(path)}
    own = {path: content for path, content in own.items() if path not in folders_needed}
    return without_clashes({**own, **fixed})


def without_clashes(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Files that can be written: none below a path that is a file itself."""
    return {
        path: content
        for path, content in files.items()
        if not any(folder in files for folder in _folders(path))
    }


def _folders(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:depth]) for depth in range(1, len(parts))]


def run_suite(
    sandbox: Sandbox, files: Mapping[str, bytes], names: Sequence[str], runner: str
) -> tuple[dict[str, str], str]:
    """Outcomes by test, and what went wrong as a whole. `path::*` is all tests of a file. Raises
    InfrastructureError if the sandbox failed."""
    groups: dict[str, list[str]] = {}
    asked = {name: plain_name(name) for name in names}
    for name in asked.values():
        path, _, rest = name.partition("::")
        if path in files:
            groups.setdefault(path, []).append(rest or "*")
    place = f"{secrets.token_hex(16)}.json"
    asking = json.dumps({"tests": groups, "runner": runner})
    result = sandbox.run_python(
        _PROGRAM, files=files, stdin=f"{asking}\n{place}\n".encode(), collect=[place]
    ).checked()
    if result.status is not Status.OK or place not in result.files:
        return {}, f"{result.status}: {result.stderr.text[-200:]}"
    found = dict(json.loads(result.files[place]))
    if any(name.endswith("::*") for name in names):
        return found, ""
    return {name: found[plain] for name, plain in asked.items() if plain in found}, ""


def test_file(name: str) -> str:
    """The file of a test.

    >>> test_file("tests/test_a.py::A::test_b"), test_file("test_b (tests.test_a.A)")
    ('tests/test_a.py', 'tests/test_a.py')
    """
    return plain_name(name).partition("::")[0]


def plain_name(name: str) -> str:
    """A test as `path::class::name`, from unittest's way to write it; others as they are.

    >>> plain_name("test_b (tests.test_a.A)")
    'tests/test_a.py::A::test_b'
    """
    match = _UNITTEST_NAME.fullmatch(name)
    if match is None:
        return name
    parts = match["place"].split(".")
    if parts[-1] == match["method"]:  # Python 3.11 and later write the method twice
        parts.pop()
    return f"{'/'.join(parts[:-1])}.py::{parts[-1]}::{match['method']}"


def _test_folder(path: str) -> str:
    found = (folder for folder in _folders(path) if folder.rpartition("/")[2] in TEST_FOLDERS)
    return next(found, "")


def _is_file(entry: Entry, path: str) -> bool:
    return entry.kind == "file" and not path.startswith(".git/")


def _judgement(fixed: Sequence[bool], kept: Sequence[bool], reasons: Sequence[str]) -> Judgement:
    told = "; ".join(dict.fromkeys(reason for reason in reasons if reason))[:300]
    return Judgement((sum(fixed), len(fixed)), (sum(kept), len(kept)), told)
