"""Commands in the process of a test: what they print, and their exit code."""

import json
from pathlib import Path
from typing import Any

import pytest

from turnwise.commands.cli import main


class Shell:
    """Runs commands in this process. Example: `shell("list").out`."""

    def __init__(self, capture: pytest.CaptureFixture[str]) -> None:
        self._capture = capture

    def __call__(self, *arguments: str | Path, code: int = 0) -> "Shell":
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        self.out, self.err = self._capture.readouterr()
        assert (ended.value.code or 0) == code, self.err
        return self

    @property
    def json(self) -> Any:
        return json.loads(self.out)
