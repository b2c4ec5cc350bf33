"""Every error that turnwise raises on purpose, and its intended reader.

    TurnwiseError
    ├── UserError              the user's mistake: one line that says what to do; exit code 2
    │   ├── ConfigError        a recipe or an override is wrong
    │   ├── DataError          a task, document or model file is missing, broken or empty
    │   ├── MissingExtraError  an optional dependency is not installed
    │   └── NotSupportedError  a part of a seam that is optional (oracle, snapshot) and not there
    ├── ToolError              the agent's mistake inside a tool: becomes an observation
    ├── DeadlineError          the agent's action took too long: the episode ends, and is graded
    ├── InfrastructureError    a machine, server or file system failed: the episode is ungraded
    └── RunStoppedError        a declared limit ended the run (ungraded episodes, divergence)

What is not here is a bug: turnwise's own crashes with its traceback, an error in a user's own file
is one line that names file and line (`own_place`). An agent's failure is not an error at all but an
`Outcome`.
"""

import difflib
import site
import sys
import sysconfig
import traceback
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any


class TurnwiseError(Exception):
    """Root of the tree; its text is a complete sentence that can be shown as it is."""


class UserError(TurnwiseError):
    """The user's mistake. The command line prints it in one line and exits with code 2."""


class ConfigError(UserError):
    """A recipe is malformed, names something unknown, or asks for a contradiction."""


class DataError(UserError):
    """A data or model file is missing, empty or damaged; the text names file and line."""


class MissingExtraError(UserError):
    """An optional package is needed: the text names the extra that brings it."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"{package} is not installed: pip install 'turnwise[{extra}]'")


class NotSupportedError(UserError):
    """An optional capability of a seam that this implementation does not have."""


class ToolError(TurnwiseError):
    """Raised by a tool for the agent to read: bad arguments, nothing found, budget spent.

    >>> raise ToolError("there is no door 7")
    Traceback (most recent call last):
    turnwise.errors.ToolError: there is no door 7
    """


class DeadlineError(TurnwiseError):
    """The agent asked for something that was not done in time. A tool that asks a service keeps a
    deadline before this one, and raises InfrastructureError with what the service did."""


class InfrastructureError(TurnwiseError):
    """Something outside the agent failed. The episode is ungraded and counted, never scored 0."""


class RunStoppedError(TurnwiseError):
    """The run ended itself at a limit that the recipe declares; the text gives the evidence."""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> ConfigError:
    """The error for a name that is not in a registry; proposes the nearest known one."""
    known = sorted(known)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known) or 'none'}"
    return ConfigError(f"unknown {kind} {name!r}: {hint}")


def wrong_value(key: str, problem: Mapping[str, Any]) -> ConfigError:
    """Build the error for a value of the wrong type or range; says what to write instead. `problem`
    is one of pydantic's error details. Example: "steps is 'x': give a whole number"."""
    kind, context = str(problem["type"]), problem.get("ctx", {})
    bounds = [f"{word} {context[name]:g}" for name, word in _BOUNDS.items() if name in context]
    if kind == "missing":
        return ConfigError(f"{key} is missing: give it a value")
    if kind == "choice":
        key, given = f"{key}.{context['key']}", context["given"]
        return ConfigError(f"{key} is {given!r}: give one of {context['expected']}")
    if kind == "literal_error":
        wanted = f"one of {context['expected']}"
    elif bounds:
        wanted = f"a value {bounds[0]}"
    elif kind == "too_short":
        wanted = f"at least {context['min_length']}"
    else:
        wanted = _KINDS.get(kind.partition("_")[0], "")
    return ConfigError(
        f"{key} is {problem['input']!r}: {f'give {wanted}' if wanted else problem['msg']}"
    )


_BOUNDS = {"ge": "of at least", "gt": "above", "le": "of at most", "lt": "below"}
_KINDS = {
    "bool": "true or false",
    "dict": "a table",
    "float": "a number",
    "int": "a whole number",
    "list": "a list",
    "model": "a table",
    "string": "a text",
    "tuple": "a list",
}


def located(error: BaseException) -> str:
    """Describe an error: its kind, its message, and the line of a user's own file that raised it.

    Example: "ZeroDivisionError: division by zero (mine.py, line 12)". The place is left out where
    no file of the user's is involved.
    """
    message = ""
    with suppress(Exception):  # a user's own error may fail at its text, too
        message = error.msg if isinstance(error, SyntaxError) else str(error)
    said = f"{type(error).__name__}: {message}" if message else type(error).__name__
    place = own_place(error)
    return f"{said} ({place})" if place else said


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or its kind where it has none."""
    return str(error).strip().partition("\n")[0] or type(error).__name__


def own_place(error: BaseException) -> str:
    """Find the deepest line of a user's own file in a traceback: "file.py, line 12", or "". A
    user's own file belongs neither to turnwise, nor to Python, nor to an installed package."""
    lines = [
        (frame.filename, frame.lineno or 0) for frame in traceback.extract_tb(error.__traceback__)
    ]
    if isinstance(error, SyntaxError) and error.filename:
        lines.append((error.filename, error.lineno or 0))
    own = [(path, line) for path, line in lines if _is_own(path)]
    return f"{_short(own[-1][0])}, line {own[-1][1]}" if own else ""


_PACKAGE = Path(__file__).resolve().parent
_STANDARD = ("stdlib", "platstdlib", "purelib", "platlib")
_LIBRARIES = [
    _PACKAGE,
    *(Path(sysconfig.get_path(name)).resolve() for name in _STANDARD),
    *(Path(place).resolve() for place in (*site.getsitepackages(), site.getusersitepackages())),
    Path(sys.prefix).resolve() / "bin",  # installed commands, as `turnwise` itself
]


def _is_own(name: str) -> bool:
    path = Path(name).resolve()
    libraries = (*_LIBRARIES, *_wings())
    return path.is_file() and not any(path.is_relative_to(folder) for folder in libraries)


@cache
def _wings() -> list[Path]:
    """The folders of wings (`wings.py`), which a checkout has outside of all libraries."""
    packages = {point.module.partition(".")[0] for point in entry_points(group="turnwise.wings")}
    found = [find_spec(package) for package in packages]
    return [Path(one.origin).resolve().parent for one in found if one is not None and one.origin]


def _short(name: str) -> str:
    path = Path(name).resolve()
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
