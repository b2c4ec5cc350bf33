"""Reads modules that have no Python source, by importing them; a short fixed list only.

Each of them is part of the interpreter and does nothing when it is imported but define names. A
module that this build of Python lacks is left out.
"""

import importlib
import re
import types
from collections.abc import Iterator

from turnwise.environments.search.definitions import (
    Definition,
    Module,
    first_paragraph,
    is_public,
)

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
            definitions={definition.name: definition for definition in _definitions(vars(module))},
        )


def _definitions(members: dict[str, object]) -> Iterator[Definition]:
    for name in sorted(filter(is_public, members)):
        member = members[name]
        if isinstance(member, type):
            if member.__name__ == name:  # not an alias, as IOError is of OSError
                yield _class(member)
        elif isinstance(member, types.BuiltinFunctionType) and name not in _REPLACED:
            yield _function(name, member)


def _class(member: type) -> Definition:
    methods = [
        _function(name, value)
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


def _function(name: str, member: object) -> Definition:
    return Definition(name, _signature(member), first_paragraph(member.__doc__))


def _signature(member: object) -> str:
    """The arguments as the interpreter states them, never by calling repr on a default."""
    text = getattr(member, "__text_signature__", None) or ""
    return _RECEIVER.sub("(", " ".join(str(text).split()))
