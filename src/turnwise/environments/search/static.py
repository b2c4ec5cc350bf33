"""Reads Python modules from their source files, without running them.

Files are parsed with `ast` and nothing in them is executed, so that no module can do harm, print or
need a display when it is read. What a module computes at import is therefore not seen.
"""

import ast
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

from turnwise.environments.search.definitions import (
    Definition,
    Module,
    first_paragraph,
    is_public,
)

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_PROPERTY = frozenset(
    {"property", "cached_property", "DynamicClassAttribute", "setter", "getter", "deleter"}
)
"""Decorators that make an attribute of a method."""


def read_module(path: Path, name: str) -> Module:
    """Read one file; `name` is the dotted name of the module that it holds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # old escapes in a source that is not ours
        tree = ast.parse(path.read_bytes())
    statements = list(_statements(tree.body))
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    return Module(
        name=name,
        summary=first_paragraph(ast.get_docstring(tree)),
        definitions=_definitions(statements),
        imports=tuple(_imports(statements, package)),
        exported=_exported(statements),
    )


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements at module level, those inside if, try and with included, in order."""
    for statement in body:
        yield statement
        for part in ("body", "handlers", "orelse", "finalbody"):
            nested = getattr(statement, part, [])
            if isinstance(statement, ast.If | ast.Try | ast.With):
                for entry in nested:
                    inner = entry.body if isinstance(entry, ast.ExceptHandler) else [entry]
                    yield from _statements(inner)


def _definitions(statements: Iterable[ast.stmt]) -> dict[str, Definition]:
    statements = list(statements)
    aliases = _aliases(statements)
    found: dict[str, Definition] = {}
    for statement in statements:
        if isinstance(statement, ast.ClassDef) and is_public(statement.name):
            found.setdefault(statement.name, _class(statement, aliases))
        elif isinstance(statement, _FUNCTIONS) and is_public(statement.name):
            found.setdefault(statement.name, _function(statement))
    return found


def _aliases(statements: Iterable[ast.stmt]) -> dict[str, str]:
    """Local names of imported ones: `from abc import ABC as _ABC` gives {"_ABC": "ABC"}."""
    return {
        alias.asname: alias.name
        for statement in statements
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
        if alias.asname
    }


def _class(node: ast.ClassDef, aliases: dict[str, str]) -> Definition:
    methods: dict[str, Definition] = {}
    signature = ""
    for statement in _statements(node.body):
        if isinstance(statement, _FUNCTIONS):
            method = _function(statement, drop_first="staticmethod" not in _decorators(statement))
            if statement.name == "__init__":
                signature = method.signature
            if is_public(statement.name) and _PROPERTY.isdisjoint(_decorators(statement)):
                methods.setdefault(statement.name, method)
    bases = [name for base in node.bases if (name := _base_name(base, aliases))]
    return Definition(
        name=node.name,
        signature=signature,
        summary=first_paragraph(ast.get_docstring(node)),
        is_class=True,
        bases=tuple(bases) or ("object",),
        methods=tuple(methods[name] for name in sorted(methods)),
    )


def _function(node: ast.FunctionDef | ast.AsyncFunctionDef, drop_first: bool = False) -> Definition:
    arguments = node.args
    if drop_first and (arguments.posonlyargs or arguments.args):
        (arguments.posonlyargs or arguments.args).pop(0)
    return Definition(
        name=node.name,
        signature=f"({' '.join(ast.unparse(arguments).split())})",
        summary=first_paragraph(ast.get_docstring(node)),
    )


def _decorators(node: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """Bare names of a function's decorators; `functools.wraps(...)` gives `wraps`."""
    expressions = [
        decorator.func if isinstance(decorator, ast.Call) else decorator
        for decorator in node.decorator_list
    ]
    return {
        expression.attr if isinstance(expression, ast.Attribute) else ast.unparse(expression)
        for expression in expressions
    }


def _base_name(base: ast.expr, aliases: dict[str, str]) -> str:
    """The bare name of a base class; a call such as namedtuple(...) has none but `tuple`."""
    if isinstance(base, ast.Subscript):
        return _base_name(base.value, aliases)
    if isinstance(base, ast.Attribute):
        return base.attr
    if isinstance(base, ast.Name):
        return aliases.get(base.id, base.id)
    if isinstance(base, ast.Call) and _base_name(base.func, aliases) == "namedtuple":
        return "tuple"
    return ""


def _imports(statements: Iterable[ast.stmt], package: str) -> Iterator[tuple[str, str]]:
    for statement in statements:
        if not isinstance(statement, ast.ImportFrom):
            continue
        module = statement.module or ""
        if statement.level:
            parents = package.split(".")[: len(package.split(".")) - statement.level + 1]
            module = ".".join([*parents, module]) if module else ".".join(parents)
        for alias in statement.names:
            if alias.asname in (None, alias.name):
                yield module, alias.name


def _exported(statements: Iterable[ast.stmt]) -> frozenset[str] | None:
    for statement in statements:
        if isinstance(statement, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == "__all__" for target in statement.targets
        ):
            constants = ast.walk(statement.value)
            return frozenset(
                node.value
                for node in constants
                if isinstance(node, ast.Constant) and isinstance(node.value, str)
            )
    return None
