"""Small bugs put into Python source: one changed place at a time, the rest as it was written.

The operators are those of mutation testing (comparison, arithmetic, logic, constants, arguments,
calls, statements).
"""

import ast
import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

COMPARISONS = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
}
ARITHMETIC = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "+"),
    ast.Div: ("/", "//"),
    ast.FloorDiv: ("//", "/"),
    ast.Mod: ("%", "//"),
}
LOGIC = {ast.And: ("and", "or"), ast.Or: ("or", "and")}
SWAPPED = {
    "min": "max",
    "any": "all",
    "lower": "upper",
    "startswith": "endswith",
    "split": "rsplit",
    "ljust": "rjust",
    "partition": "rpartition",
}
NAMES = {
    **SWAPPED,
    **{second: first for first, second in SWAPPED.items()},
    "strip": "rstrip",
    "lstrip": "rstrip",
    "rstrip": "lstrip",
    "append": "extend",
    "sorted": "list",
    "sum": "len",
}


@dataclass(frozen=True)
class _Edit:
    """Replace the bytes from `start` to `end`."""

    start: int
    end: int
    text: str


class _Text:
    """Source as bytes, in which nodes have their places."""

    def __init__(self, source: str) -> None:
        self.data = source.encode()
        self.starts = [0, *(match.end() for match in re.finditer(rb"\n", self.data))]

    def span(self, node: Any) -> tuple[int, int]:
        first = self.starts[node.lineno - 1] + node.col_offset
        return first, self.starts[node.end_lineno - 1] + node.end_col_offset

    def of(self, node: Any) -> str:
        first, last = self.span(node)
        return self.data[first:last].decode()

    def changed(self, edit: _Edit, first: int = 0, last: int | None = None) -> str:
        """The text between two places after an edit."""
        before, after = self.data[first : edit.start], self.data[edit.end : last]
        return (before + edit.text.encode() + after).decode()

    def still_parses(self, edit: _Edit, function: Any) -> bool:
        # Not the whole text: a file's edits are as many as it is long.
        first, last = self.starts[function.lineno - 1], self.span(function)[1]
        head = "if 1:\n" if function.col_offset else ""
        try:
            ast.parse(head + self.changed(edit, first, last))
        except (SyntaxError, ValueError):
            return False
        return True

    def between(self, left: Any, right: Any, words: tuple[str, str]) -> Iterator[_Edit]:
        """Another operator between two nodes."""
        first, last = self.span(left)[1], self.span(right)[0]
        text = self.data[first:last]
        place = text.find(words[0].encode())
        if place >= 0 and b"#" not in text:
            yield _Edit(first + place, first + place + len(words[0]), words[1])


class Mutants(Sequence[str]):
    """Texts with one bug, each made when it is asked for: there are as many as the source is long,
    too many to keep."""

    def __init__(self, text: _Text, edits: Sequence[_Edit]) -> None:
        self._text, self._edits = text, edits

    def __len__(self) -> int:
        return len(self._edits)

    def __getitem__(self, place: Any) -> Any:
        return self._text.changed(self._edits[place])


def mutants(source: str) -> Sequence[str]:
    """All texts with one bug, each once, in order. Docstrings, annotations and what is outside of
    functions stay as they are. Nothing for a text that is not Python."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return []
    text, kept, seen = _Text(source), list[_Edit](), {_digest(source)}
    inside = _inside_functions(tree)
    edits = [(edit, function) for function, node in inside for edit in _edits(node, text)]
    for edit, function in sorted(edits, key=lambda one: (one[0].start, one[0].end, one[0].text)):
        digest = _digest(text.changed(edit))
        if digest not in seen and text.still_parses(edit, function):
            seen.add(digest)
            kept.append(edit)
    return Mutants(text, kept)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def _inside_functions(tree: ast.Module) -> Iterator[tuple[ast.AST, ast.AST]]:
    """Each function with the nodes in its body."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body
            for statement in body:
                yield from ((node, part) for part in _parts(statement))


def _parts(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return  # walked on its own
    if isinstance(node, ast.JoinedStr):
        return  # before Python 3.12 its parts have no places of their own
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _parts(child)


def _edits(node: ast.AST, text: _Text) -> Iterator[_Edit]:
    if isinstance(node, ast.expr):
        yield from _operators(node, text)
    match node:
        case ast.Constant():
            yield from (_Edit(*text.span(node), other) for other in _constants(node.value))
        case ast.Call():
            yield from _calls(node, text)
        case ast.If() | ast.IfExp():
            yield _Edit(*text.span(node.test), f"not ({text.of(node.test)})")
        case ast.Slice():
            for bound in (node.lower, node.upper):
                if bound is not None:
                    yield _Edit(*text.span(bound), "")
                    yield _Edit(*text.span(bound), f"{text.of(bound)} + 1")
        case ast.Continue():
            yield _Edit(*text.span(node), "break")
        case ast.Expr():
            yield _Edit(*text.span(node), "pass")
        case ast.AugAssign() if type(node.op) in ARITHMETIC:
            words = ARITHMETIC[type(node.op)]
            yield from text.between(node.target, node.value, (f"{words[0]}=", f"{words[1]}="))
            yield _Edit(*text.span(node), "pass")


def _operators(node: ast.expr, text: _Text) -> Iterator[_Edit]:
    match node:
        case ast.Compare():
            operands = [node.left, *node.comparators]
            for left, operator, right in zip(operands, node.ops, operands[1:], strict=False):
                yield from text.between(left, right, COMPARISONS[type(operator)])
        case ast.BinOp() if type(node.op) in ARITHMETIC:
            yield from text.between(node.left, node.right, ARITHMETIC[type(node.op)])
        case ast.BoolOp():
            for left, right in zip(node.values, node.values[1:], strict=False):
                yield from text.between(left, right, LOGIC[type(node.op)])
        case ast.UnaryOp() if isinstance(node.op, ast.Not | ast.USub):
            yield _Edit(text.span(node)[0], text.span(node.operand)[0], "")


def _constants(value: object) -> list[str]:
    if isinstance(value, bool):
        return [str(not value)]
    if isinstance(value, int) and abs(value) < 10**6:
        return [str(value + 1), str(value - 1)] if value > 0 else [str(value + 1)]
    return []


def _calls(node: ast.Call, text: _Text) -> Iterator[_Edit]:
    function = node.func
    name = getattr(function, "id", getattr(function, "attr", ""))
    if name in NAMES:
        last = text.span(function)[1]
        yield _Edit(last - len(name.encode()), last, NAMES[name])
    for left, right in zip(node.args, node.args[1:], strict=False):
        middle = text.data[text.span(left)[1] : text.span(right)[0]].decode()
        swapped = text.of(right) + middle + text.of(left)
        yield _Edit(text.span(left)[0], text.span(right)[1], swapped)
    arguments = [*node.args, *node.keywords]
    for before, keyword in pairwise(arguments):
        if isinstance(keyword, ast.keyword):
            yield _Edit(text.span(before)[1], text.span(keyword)[1], "")
