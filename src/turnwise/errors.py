"""Every error that turnwise raises on purpose, and who is meant to read it.

    TurnwiseError
    ├── UserError              the user's mistake: one line that says what to do; exit code 2
    │   ├── ConfigError        a recipe or an override is wrong
    │   ├── DataError          a task, document or model file is missing, broken or empty
    │   ├── MissingExtraError  an optional dependency is not installed
    │   └── NotSupportedError  a part of a seam that is optional (oracle, snapshot) and not there
    ├── ToolError              the agent's mistake inside a tool: becomes an observation
    ├── InfrastructureError    a machine, server or file system failed: the episode is ungraded
    └── RunStoppedError        a declared limit ended the run (ungraded episodes, divergence)

What is not here is a bug in turnwise and crashes with its traceback. An agent's failure is not an
error at all but an `Outcome`.
"""

import difflib
from collections.abc import Iterable


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
    """Raised by a tool for the agent to read: bad arguments, nothing found, budget spent."""


class InfrastructureError(TurnwiseError):
    """Something outside the agent failed. The episode is ungraded and counted, never scored 0."""


class RunStoppedError(TurnwiseError):
    """The run ended itself at a limit that the recipe declares; the text gives the evidence."""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> ConfigError:
    """The error for a name that is not in a registry; proposes the nearest known one."""
    known = sorted(known)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
    return ConfigError(f"unknown {kind} {name!r}: {hint}")
