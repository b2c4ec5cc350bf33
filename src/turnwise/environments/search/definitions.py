"""The contents of Python's modules: names, signatures and first paragraphs; no documents yet.

Sources are parsed and nothing in them is executed, so that no module can do harm, print or need a
display when it is read: what a module computes at import is not seen. Modules without a source are
imported, from a fixed list: each is a part of the interpreter, and does nothing when it is imported
but define names. One that this build of Python lacks is left out.
"""

import ast
import importlib
import inspect
import re
import types
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

SUMMARY_WORDS = 60
"""Longer first paragraphs are cut."""


@dataclass(frozen=True)
class Definition:
    """A class, function or method. Example: Definition("chdir", "(path)", "Change the ...")."""

    name: str
    signature: str
    """The arguments in parentheses; empty where they are not known."""
    summary: str
    """First paragraph of the docstring, on one line; may be empty."""
    is_class: bool = False
    bases: tuple[str, ...] = ()
    """Bare names of the base classes, `object` where none is written."""
    methods: tuple["Definition", ...] = ()
    """Methods in alphabetical order."""


@dataclass(frozen=True)
class Module:
    """One module as it is written, re-exports not yet resolved."""

    name: str
    summary: str
    definitions: dict[str, Definition]
    imports: tuple[tuple[str, str], ...] = ()
    """(module, name) for each `from module import name`, in order; the name may be `*`."""
    exported: frozenset[str] | None = field(default=None)
    """`__all__` as far as it is written as a plain list; None when there is none."""

    @property
    def public(self) -> bool:
        """Whether people are meant to import it: no part of its name starts with `_`."""
        return not any(part.startswith("_") for part in self.name.split("."))


def is_public(name: str) -> bool:
    """Whether a class, function or method has a name for public use."""
    return not name.startswith("_")


def first_paragraph(docstring: str | None) -> str:
    """The first paragraph of a docstring on one line, at most SUMMARY_WORDS words."""
    paragraph = inspect.cleandoc(docstring or "").strip().partition("\n\n")[0]
    return " ".join(paragraph.split()[:SUMMARY_WORDS])


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_PROPERTY = frozenset(
    {"property", "cached_property", "DynamicClassAttribute", "setter", "getter", "deleter"}
)
"""Decorators that make an attribute of a method."""


def read_module(path: Path, name: str) -> Module:
    """Read one file; `name` is the dotted name of the module that it holds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # old escapes in a source that is not ours
        tree = ast.parse(path.read_bytes())  # bytes: a source states its encoding itself
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
        (arguments.posonlyargs or arguments.args).pop(0)  # self or cls, which no caller gives
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


_ITSELF = "sys.modules[__name__]"


def _imports(statements: Iterable[ast.stmt], package: str) -> Iterator[tuple[str, str]]:
    for statement in statements:
        # As Python 3.13 makes `_collections_abc` known as `collections.abc`, too.
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == _ITSELF:
            yield ast.unparse(statement.value), "*"
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


COMPILED_MODULES = (
    *("array", "atexit", "binascii", "builtins", "cmath", "errno", "faulthandler", "fcntl", "gc"),
    *("grp", "itertools", "marshal", "math", "mmap", "posix", "pwd", "pyexpat", "resource"),
    *("select", "sys", "syslog", "termios", "time", "unicodedata", "zlib"),
    *("_bisect", "_codecs", "_collections", "_contextvars", "_csv", "_datetime", "_decimal"),
    *("_functools", "_heapq", "_io", "_json", "_locale", "_operator", "_pickle", "_queue"),
    *("_random", "_signal", "_socket", "_stat", "_string", "_struct", "_thread", "_tracemalloc"),
    *("_weakref", "_zoneinfo"),
)
"""Modules that are imported; no others are."""

_REPLACED = frozenset({"breakpointhook", "displayhook", "excepthook", "unraisablehook"})
"""Functions of sys that a shell or a test runner puts its own in the place of: left out."""

_METHODS = (
    types.MethodDescriptorType,
    types.ClassMethodDescriptorType,
    types.BuiltinFunctionType,
    classmethod,
    staticmethod,
)
_RECEIVER = re.compile(r"^\(\$\w+(?:, /)?(?:, |(?=\)))")
"""`($self, /, ` and its like, as an interpreter's own signature begins."""


def read_compiled_modules() -> Iterator[Module]:
    """Every module of the list that this Python has, in the list's order."""
    for name in COMPILED_MODULES:
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        yield Module(
            name=name,
            summary=first_paragraph(module.__doc__),
            definitions={definition.name: definition for definition in _members(vars(module))},
        )


def _members(members: dict[str, object]) -> Iterator[Definition]:
    for name in sorted(filter(is_public, members)):
        member = members[name]
        if isinstance(member, type):
            if member.__name__ == name:  # not an alias, as IOError is of OSError
                yield _compiled_class(member)
        elif isinstance(member, types.BuiltinFunctionType) and name not in _REPLACED:
            yield _compiled_function(name, member)


def _compiled_class(member: type) -> Definition:
    methods = [
        _compiled_function(name, value)
        for name, value in sorted(vars(member).items())
        if is_public(name) and isinstance(value, _METHODS)
    ]
    return Definition(
        name=member.__name__,
        signature=_signature(member),
        summary=first_paragraph(member.__doc__),
        is_class=True,
        bases=tuple(base.__name__ for base in member.__bases__) or ("object",),
        methods=tuple(methods),
    )


def _compiled_function(name: str, member: object) -> Definition:
    return Definition(name, _signature(member), first_paragraph(member.__doc__))


def _signature(member: object) -> str:
    """The arguments as the interpreter states them, never by calling repr on a default."""
    text = getattr(member, "__text_signature__", None) or ""
    return _RECEIVER.sub("(", " ".join(str(text).split()))
