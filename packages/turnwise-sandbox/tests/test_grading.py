"""The second sandbox: right answers pass, tricks of the agent's code do not."""

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.errors import ConfigError, InfrastructureError
from turnwise.sandbox.result import Result, Status
from turnwise_sandbox import calls
from turnwise_sandbox.grading import Case, Grade, grade_function, same, select
from turnwise_sandbox.sandbox import Sandbox

CASES = [Case((2, 3), 5), Case((1, 1), 2), Case((), 7, {"left": 3, "right": 4})]
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3)
        | st.frozensets(st.integers() | st.text(max_size=3), max_size=3)
    ),
    max_leaves=5,
)


@pytest.fixture(scope="module")
def grader(maker: Callable[..., Sandbox]) -> Iterator[Sandbox]:
    with maker("bubblewrap", warm=1) as sandbox:
        yield sandbox


def grade(grader: Sandbox, source: str, cases: list[Case] = CASES) -> Grade:
    return grade_function(grader, {"solution.py": source.encode()}, "solution:add", cases)


def test_right_and_wrong(grader: Sandbox) -> None:
    right = grade(grader, "def add(left, right): return left + right")
    assert (right.passed, right.share) == ((True,) * 3, 1.0)
    half = grade(grader, "def add(left, right): return 5 if left == 2 else 1 / 0")
    assert half.passed == (True, False, False)
    assert half.reasons == ("", *["ZeroDivisionError: division by zero"] * 2)


TRICKS = {
    "equal to everything": """
class Equal(int):
    def __eq__(self, other): return True
    __hash__ = int.__hash__
def add(left, right): return Equal(0)
""",
    "leaves": "import sys\ndef add(left, right): sys.exit(0)",
    "leaves at once": "import os\ndef add(left, right): os._exit(0)",
    "leaves on import": "raise SystemExit(0)",
    "executes another program": "import os\ndef add(left, right): os.execv('/bin/true', ['true'])",
    "says that it passed": "print('3 passed')\ndef add(left, right): print('PASSED'); return True",
    "writes the results": """
import glob, sys
def add(left, right):
    for frame in [sys._getframe(n) for n in range(1, 4)]:
        frame.f_globals.update(encode=lambda value: {"passed": True})
    with open("returned.by.turnwise.jsonl", "w") as file:
        file.write('{"value": {"passed": true}}\\n{"value": null, "passed": true}\\n[]\\nx\\n')
    return 0
""",
    "leaves something that writes": """
import os, time
if os.fork() == 0:
    os.setsid()
    while True:
        open("returned.by.turnwise.jsonl", "w").write('{"passed": true}')
def add(left, right): return None
""",
    "changes the modules": """
import json, builtins
json.dumps = lambda *a, **k: '{"passed": true}'
builtins.len = lambda *a: 0
def add(left, right): return None
""",
    "is of another type": "def add(left, right): return float(left + right)",
    "never ends": "def add(left, right):\n    while True: pass",
    "takes all memory": "def add(left, right): return bytearray(10 << 30)",
    "is not there": "x = 1",
}


@pytest.mark.parametrize("trick", TRICKS)
def test_tricks(grader: Sandbox, trick: str) -> None:
    assert grade(grader, TRICKS[trick]).passed == (False,) * 3


class Recording(Sandbox):
    """Remembers what went into it."""

    seen = ""

    def run_python(self, source: str, **given: Any) -> Result:
        self.seen = repr((source, given))
        return super().run_python(source, **given)


def test_expected_values_stay_outside(grader: Sandbox) -> None:
    with Recording(grader.settings) as sandbox:
        cases = [Case(("argument", 1), "expected-value")]
        result = grade(sandbox, "def add(left, right): return 'expected-' + 'value'", cases)
    assert result.passed == (True,)
    assert "argument" in sandbox.seen
    assert "expected-value" not in sandbox.seen


class Broken(Sandbox):
    """Fails itself, whatever the code did."""

    def run_python(self, source: str, **given: Any) -> Result:
        result = super().run_python(source, **given)
        return replace(result, status=Status.INFRASTRUCTURE, error="the sandbox died")


def test_no_grade_without_a_sandbox(grader: Sandbox) -> None:
    with Broken(grader.settings) as sandbox, pytest.raises(InfrastructureError, match="sandbox"):
        grade(sandbox, "def add(left, right): return left + right")


def test_select() -> None:
    files = {"src/a.py": b"1", "src/conftest.py": b"2", "../x": b"3", "b.py": b"4"}
    taken, refused = select(files, ["src/**", "../x"])
    assert taken == {"src/a.py": b"1"}
    assert set(refused) == {"src/conftest.py", "../x", "b.py"}


def test_mistakes_of_the_user(grader: Sandbox) -> None:
    with pytest.raises(ConfigError, match="no cases"):
        grade(grader, "", [])
    with pytest.raises(ConfigError, match="grader's own"):
        grade_function(grader, {calls.RETURNED: b""}, "a:b", CASES)


@settings(max_examples=40)
@given(plain)
def test_plain_values_come_back_as_they_were(value: Any) -> None:
    back = calls.decode(json.loads(json.dumps(calls.encode(value))))
    assert same(value, back)
    assert repr(back) == repr(value) or isinstance(value, frozenset | dict | list | tuple)


@pytest.mark.parametrize("value", [10**5000, -(10**5000)], ids=("above", "below"))
def test_integers_of_any_length_come_back(value: int) -> None:
    """As a factorial of 2000, which Python writes as decimals only when it is told to."""
    written = json.dumps(calls.encode({value: [value]}))
    assert same({value: [value]}, calls.decode(json.loads(written)))


@settings(max_examples=40)
@given(plain, plain)
def test_same_is_equality_with_types(left: Any, right: Any) -> None:
    assert same(left, right) == same(right, left)
    assert same(left, left)
    if same(left, right):
        assert left == right


def test_same_tells_types_apart() -> None:
    for left, right in [(1, True), (1, 1.0), ([1], (1,)), ({1: 2}, {True: 2}), ({1}, {True})]:
        assert left == right or isinstance(left, list)
        assert not same(left, right)
    assert not same(frozenset({(1,)}), frozenset({(True,)}))
    assert same(math.nan, math.nan)
    assert same(1.0, 1.0 + 1e-9, 1e-6)
    assert not same(1.0, 1.1, 1e-6)
