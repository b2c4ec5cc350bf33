"""Judging what an agent wrote, in a second sandbox that the agent has never been in.

Only allow-listed files come over. The agent's function is called there on given arguments, and only
plain data comes back; the host compares, and the expected values never leave it. So nothing in
reach of the agent's code would make it pass: no exit status, no test framework, no file of results.
It runs no test suites: one that shares a process with the code that it tests can be deceived by it.
"""

import inspect
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from turnwise.errors import ConfigError
from turnwise.sandbox.base import CodeSandbox
from turnwise.sandbox.result import Result, Status
from turnwise.sandbox.settings import Limits
from turnwise_sandbox import artefacts, calls

WRONG = "another value was expected"
_PROGRAM = inspect.getsource(calls) + "\n\ncall_all()\n"


@dataclass(frozen=True)
class Case:
    """A call and what it has to return. Example: Case((2, 3), 5)."""

    arguments: tuple[Any, ...]
    expected: Any
    keywords: Mapping[str, Any] = field(default_factory=dict)
    tolerance: float | None = None
    """Tolerance of its floats, in place of the common one."""


@dataclass(frozen=True)
class Grade:
    """Verdict on each case, in order."""

    passed: tuple[bool, ...]
    reasons: tuple[str, ...]
    """Why a case failed, without what was expected; empty for those that passed."""
    result: Result
    """The second sandbox's."""

    @property
    def share(self) -> float:
        """Cases passed, from 0 to 1."""
        return sum(self.passed) / len(self.passed)

    @property
    def returned(self) -> float:
        """Share of the cases that returned plain data, right or not, from 0 to 1."""
        return sum(reason in ("", WRONG) for reason in self.reasons) / len(self.reasons)


def select(
    files: Mapping[str, bytes], allowed: Sequence[str]
) -> tuple[dict[str, bytes], dict[str, str]]:
    """Split an agent's files into those that may be passed on, and those that may not with the
    reason.

    `allowed` has patterns of `artefacts.matches`; files that run by themselves are refused anyway.
    """
    taken, refused = {}, {}
    for path, content in files.items():
        reason = artefacts.refusal(path)
        if not reason and not artefacts.matches(path, allowed):
            reason = "not on the list"
        if reason:
            refused[path] = reason
        else:
            taken[path] = content
    return taken, refused


def grade_function(
    sandbox: CodeSandbox,
    files: Mapping[str, bytes],
    target: str,
    cases: Sequence[Case],
    *,
    limits: Limits | None = None,
    tolerance: float = 0.0,
) -> Grade:
    """Call the agent's function on all cases, in one process, and compare what it returns.

    `files` have been through `select`; `target` is "module:function". Values are plain data: None,
    bool, int, float, str, and lists, tuples, sets and dictionaries of them, equal in type too: True
    is not 1. Floats may differ by `tolerance`, relative or absolute. Raises InfrastructureError if
    the sandbox failed: the run has no grade then.
    """
    if not cases:
        raise ConfigError("there are no cases to grade on")
    if calls.RETURNED in files:
        raise ConfigError(f"{calls.RETURNED} is the grader's own file: do not pass it on")
    asked = {
        "target": target,
        "calls": [
            [calls.encode(case.arguments), calls.encode(dict(case.keywords))] for case in cases
        ],
    }
    result = sandbox.run_python(
        _PROGRAM,
        files=files,
        stdin=json.dumps(asked).encode(),
        collect=[calls.RETURNED],
        limits=limits,
    ).checked()
    lines = result.files.get(calls.RETURNED, b"").splitlines()
    reasons = []
    for number, case in enumerate(cases):
        line = lines[number] if number < len(lines) else None
        allowed = tolerance if case.tolerance is None else case.tolerance
        reasons.append(_reason(line, case.expected, allowed, result))
    return Grade(tuple(not reason for reason in reasons), tuple(reasons), result)


def same(expected: Any, returned: Any, tolerance: float = 0.0) -> bool:
    """Equal in value and in type, all the way down; floats up to a relative tolerance."""
    if type(expected) is not type(returned):
        return False
    if isinstance(expected, float):
        if math.isnan(expected) or math.isnan(returned):
            return math.isnan(expected) and math.isnan(returned)
        return math.isclose(expected, returned, rel_tol=tolerance, abs_tol=tolerance)
    if isinstance(expected, list | tuple):
        pairs = zip(expected, returned, strict=False)
        return len(expected) == len(returned) and all(same(*pair, tolerance) for pair in pairs)
    if isinstance(expected, dict):
        # As keys of a dictionary, 1 and True are one.
        keys = _as_text(set(expected)) == _as_text(set(returned))
        return keys and all(same(expected[key], returned[key], tolerance) for key in expected)
    if isinstance(expected, set | frozenset):
        return _as_text(expected) == _as_text(returned)
    return bool(expected == returned)


def _as_text(members: Any) -> str:
    """A text in which 1, 1.0 and True differ."""
    return json.dumps(calls.encode(members))


def _reason(line: bytes | None, expected: Any, tolerance: float, result: Result) -> str:
    if line is None:
        ended = result.status is Status.OK or result.status is Status.NONZERO
        return "it was not called, or did not return" if ended else f"stopped: {result.status}"
    try:
        said = json.loads(line)
        if "error" in said:
            return str(said["error"])[:500]
        returned = calls.decode(said["value"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return "it returned no plain data"
    return "" if same(expected, returned, tolerance) else WRONG
