"""Imports a user's own Python: a file, under a name made from its place and text, or a module.

Not here: what is looked for in it (`registry.py`, `desk/own_tools.py`).
"""

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from turnwise.errors import ConfigError, unknown_name


def load_module(place: str, what: str) -> ModuleType:
    """Import `path/to/file.py` or `package.module`; `what` is for messages.

    Raises ConfigError where there is none; an error inside the user's own code goes through.
    """
    return _file(Path(place), what) if place.endswith(".py") else _module(place, what)


def load_function(target: str, what: str) -> Callable[..., Any]:
    """The function of `path/to/file.py:name` or `package.module:name`; raises as `load_module`."""
    place, separator, name = target.rpartition(":")
    if not separator:
        raise ConfigError(f"{target!r} names no function: write path/to/file.py:function")
    module = load_module(place, what)
    functions = [key for key, value in vars(module).items() if callable(value)]
    if name not in functions:
        raise ConfigError(f"{place}: {unknown_name('function', name, functions)}")
    found: Callable[..., Any] = vars(module)[name]
    return found


def _file(path: Path, what: str) -> ModuleType:
    """A file that was edited is another module, so the edit is seen."""
    if not path.is_file():
        raise ConfigError(f"{what} file {path}: there is no such file")
    digest = hashlib.sha256(str(path.resolve()).encode() + path.read_bytes()).hexdigest()[:12]
    name = f"turnwise_file_{path.stem}_{digest}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{what} file {path}: Python cannot import it")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _module(name: str, what: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise ConfigError(f"{what} module {name!r}: there is no such module") from None
        raise
