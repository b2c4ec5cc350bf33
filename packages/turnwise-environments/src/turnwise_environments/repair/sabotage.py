"""Makes a repository's tests fail, to see whether failures are still reported.

A suite shares its process with the code that it tests, so that code can replace what judges it. It
does so for a copy of the suite too, in which each test ends in assertions that cannot hold: what
`passes` there proves nothing. Not here: where both are run (`judging.py`), and code that reads the
tests to distinguish the copy from the suite.
"""

import ast
from collections.abc import Collection

FAILING = {
    "assertEqual": "1, 2",
    "assertNotEqual": "1, 1",
    "assertTrue": "False",
    "assertFalse": "True",
    "assertIs": "1, None",
    "assertIsNot": "None, None",
    "assertIsNone": "1",
    "assertIsNotNone": "None",
    "assertIn": "1, []",
    "assertNotIn": "1, [1]",
    "assertIsInstance": "1, str",
    "assertNotIsInstance": "1, int",
    "assertAlmostEqual": "1.0, 2.0",
    "assertNotAlmostEqual": "1.0, 1.0",
    "assertGreater": "1, 2",
    "assertGreaterEqual": "1, 2",
    "assertLess": "2, 1",
    "assertLessEqual": "2, 1",
    "assertRegex": "'a', 'b'",
    "assertNotRegex": "'a', 'a'",
    "assertCountEqual": "[1], [2]",
    "assertListEqual": "[1], [2]",
    "assertTupleEqual": "(1,), (2,)",
    "assertDictEqual": "{1: 1}, {}",
    "assertSetEqual": "{1}, {2}",
    "assertSequenceEqual": "[1], [2]",
    "assertMultiLineEqual": "'a', 'b'",
    "assertRaises": "ValueError, int",
    "assertRaisesRegex": "ValueError, 'a', int",
    "raises": "ValueError, int",
    "fail": "'fails'",
}
"""unittest's and pytest's assertions, with arguments for which they have to raise."""
OWNERS = {"raises": ("pytest",), "fail": ("pytest", "self", "cls")}
"""Owners of assertions with common names: functions of others by such a name need not raise."""
EXPECTED = ("expectedFailure", "xfail")
"""Decorators of tests for which failing is right."""


def sabotaged(source: str) -> tuple[str, set[str]]:
    """A file of tests that can only fail, and the names of the functions that were changed: those
    whose name begins with `test`, and which are not expected to fail.

    A test does what it did; then each kind of assertion that it uses is tried on what it cannot
    accept, and the test fails only if all of them raise. Raises SyntaxError for text that is not
    Python.
    """
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
    """Failing calls of the kinds that a test uses, as it names them: `self.assertEqual(1, 2)`."""
    called = [one.func for one in ast.walk(node) if isinstance(one, ast.Call)]
    return {
        f"{ast.unparse(function)}({FAILING[function.attr]})"
        for function in called
        if isinstance(function, ast.Attribute)
        and function.attr in FAILING
        and isinstance(function.value, ast.Name)
        and function.value.id in OWNERS.get(function.attr, (function.value.id,))
    }
