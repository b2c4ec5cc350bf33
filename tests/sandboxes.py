"""Sandboxes of whichever kind works on this machine, and one that runs nothing."""

from collections.abc import Sequence
from typing import Any

import pytest

from turnwise.errors import ConfigError
from turnwise.sandbox.base import CodeSandbox, Session
from turnwise.sandbox.result import Result, Status
from turnwise.sandbox.settings import SandboxSettings


class Empty(CodeSandbox):
    """Says of each run that it was all right, and runs nothing."""

    def __init__(self, settings: SandboxSettings) -> None:
        self.settings = settings

    def find_tier(self) -> str:
        return "empty"

    def run_python(self, source: str, **given: Any) -> Result:
        return Result(Status.OK, self.find_tier(), self.settings.limits)

    def run(self, command: Sequence[str], **given: Any) -> Result:
        return Result(Status.OK, self.find_tier(), self.settings.limits)

    def open_session(self, **given: Any) -> Session:
        raise NotImplementedError

    def close(self) -> None:
        pass


def working(sandbox: Any) -> Any:
    """The sandbox; a skip where it does not work."""
    try:
        sandbox.find_tier()
    except ConfigError as error:
        pytest.skip(str(error))
    return sandbox
