"""The modules that run in a sandbox where turnwise is not: their code, and what loads it."""

import functools
from importlib.util import find_spec
from pathlib import Path
from types import CodeType

_OWN = "protocol artefacts snippets usage processes start supervisor"
NAMES = ("turnwise.prctl", *(f"turnwise_sandbox.{name}" for name in _OWN.split()))
"""Each after those that it imports."""
LOADER = """
import os, sys, types
def load(modules):
    for name, code in modules:
        package, _, leaf = name.partition(".")
        if package not in sys.modules:
            sys.modules[package] = types.ModuleType(package)
        module = sys.modules[name] = types.ModuleType(name)
        module.__file__ = "<" + name + ">"
        setattr(sys.modules[package], leaf, module)
        if isinstance(code, str):
            code = compile(code, module.__file__, "exec")
        exec(code, module.__dict__)
"""


@functools.cache
def text(module: str) -> str:
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).read_text()


@functools.cache
def compiled(module: str) -> CodeType:
    """The code of a module, for an interpreter of this very version."""
    return compile(text(module), f"<{module}>", "exec")
