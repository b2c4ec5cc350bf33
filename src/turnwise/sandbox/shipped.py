"""The modules that run in a sandbox where turnwise is not: their code, and what loads it.

Standard library only. Not here: what they do (supervisor.py, start.py).
"""

import functools
from pathlib import Path
from types import CodeType

PACKAGE = "turnwise.sandbox"
NAMES = ("protocol", "artefacts", "prctl", "snippets", "usage", "processes", "start", "supervisor")
"""Each after those that it imports."""
LOADER = f"""
import os, sys, types
def load(modules):
    for name in ("turnwise", "{PACKAGE}"):
        sys.modules[name] = types.ModuleType(name)
    for name, code in modules:
        whole = "{PACKAGE}." + name
        module = sys.modules[whole] = types.ModuleType(whole)
        module.__file__ = "<" + whole + ">"
        setattr(sys.modules["{PACKAGE}"], name, module)
        if isinstance(code, str):
            code = compile(code, module.__file__, "exec")
        exec(code, module.__dict__)
"""
"""Python that defines `load`, for texts and for compiled modules."""


@functools.cache
def text(module: str) -> str:
    """The source of a module of this package."""
    return (Path(__file__).parent / f"{module}.py").read_text()


@functools.cache
def compiled(module: str) -> CodeType:
    """The code of a module, for an interpreter of this very version."""
    return compile(text(module), f"<{PACKAGE}.{module}>", "exec")
