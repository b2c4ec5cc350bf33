"""The mechanical part of the rule for docstrings: a first sentence can be read alone.

Not here: whether a sentence is true, or plain.
"""

import ast
import re
from collections import Counter
from collections.abc import Callable

import pytest

from tests.sources import modules

FRAGMENT = re.compile(
    r"(Of|That of|Those|These|What|Which|Who|Whoever|Whose|Other|The same|The inner one|By|From"
    r"|Under|As|And)\b|\.\.\."
)
"""Openings that lean on the name beside the docstring, or on the docstring before it."""
RIDDLE = re.compile(
    r"\b(who knows|whoever|nobody|somebody|for what is no|(is|are|was|were) told)\b"
)
"""Words for people where programs are meant, and negations that have to be read twice."""
UNCHECKED = re.compile(r"from memory|from notes|our notes")
"""Sources that a reader cannot look up."""

FRAGMENTS: dict[str, int] = {}
RIDDLES = {"sandbox": 1, "tools": 1}
"""Docstrings of each kind that a package may have: lower the number, or take it off."""


def docstrings() -> list[tuple[str, str]]:
    """(package, docstring) of all modules, classes, functions and attributes."""
    found = []
    for path, name in modules():
        package = name.removeprefix("turnwise.").partition(".")[0]
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                text = node.value.value
                if isinstance(text, str):
                    found.append((package, text))
    return found


@pytest.mark.long
@pytest.mark.parametrize(
    ("matches", "allowed"),
    [(FRAGMENT.match, FRAGMENTS), (RIDDLE.search, RIDDLES)],
    ids=["fragments", "riddles"],
)
def test_docstrings_can_be_read_alone(
    matches: Callable[[str], object], allowed: dict[str, int]
) -> None:
    counts = Counter(package for package, text in docstrings() if matches(" ".join(text.split())))
    assert {name: n for name, n in counts.items() if n > allowed.get(name, 0)} == {}


def test_sources_can_be_looked_up() -> None:
    assert [name for path, name in modules() if UNCHECKED.search(path.read_text())] == []
