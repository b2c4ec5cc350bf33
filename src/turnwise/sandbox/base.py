"""The seam of the sandbox: what tools and graders ask for, whatever it is that runs the code."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Self

from turnwise.sandbox.result import Result
from turnwise.sandbox.settings import Limits, SandboxSettings


class Session(ABC):
    """Cells that share their variables and the work folder, in one sandbox. One thread at a time.

    A cell that goes beyond a limit ends the sandbox, and the variables are gone; the next cell gets
    a new one. An exception ends the cell only. Whether a cell raised is said by the process that
    ran it, and the code may lie: nothing is graded on it.
    """

    lost: bool = False
    """The sandbox ended with the last cell: variables and files are gone."""

    @abstractmethod
    def run(self, source: str) -> Result:
        """Run one cell; the value of its last expression is printed, as at a prompt. Status ok, or
        nonzero if it raised (`error` has the class, stderr the traceback), or one that says how the
        whole sandbox ended, by a limit, `sys.exit` or a crash."""

    @abstractmethod
    def close(self) -> None:
        """End the session. Idempotent."""


class CodeSandbox(ABC):
    """A sandbox: the place where code is run. Functions block, and any thread may call them."""

    settings: SandboxSettings

    @abstractmethod
    def find_tier(self) -> str:
        """Find the tier in use, which the first call tries out. Raises ConfigError if none that is
        allowed works here, naming each with the reason."""

    @abstractmethod
    def run_python(
        self,
        source: str,
        *,
        files: Mapping[str, bytes] = {},
        stdin: bytes = b"",
        environment: Mapping[str, str] = {},
        collect: Sequence[str] = (),
        limits: Limits | None = None,
    ) -> Result:
        """Run Python source as a program.

        `files` are written to the work folder before, by relative path; those that the allow-list
        `collect` names, by path or pattern, are gathered after. `limits` replace those of the
        settings. `environment` adds variables. Raises ConfigError for a file path that leaves the
        folder.
        """

    @abstractmethod
    def run(
        self,
        command: Sequence[str],
        *,
        files: Mapping[str, bytes] = {},
        stdin: bytes = b"",
        environment: Mapping[str, str] = {},
        collect: Sequence[str] = (),
        limits: Limits | None = None,
    ) -> Result:
        """Run a program: a name on the sandbox's PATH, or a path in it, and its arguments. A
        program that is not there gives exit status 127. Otherwise as `run_python`."""

    @abstractmethod
    def open_session(
        self, *, files: Mapping[str, bytes] = {}, limits: Limits | None = None
    ) -> Session:
        """A Python session that the caller closes; NotSupportedError where there are none."""

    @abstractmethod
    def close(self) -> None:
        """End everything that runs in it; returns when all of it is gone. A later run starts it
        again. Idempotent."""

    @contextmanager
    def session(
        self, *, files: Mapping[str, bytes] = {}, limits: Limits | None = None
    ) -> Iterator[Session]:
        """A Python session. It takes one of the places while a cell runs, and none in between."""
        session = self.open_session(files=files, limits=limits)
        try:
            yield session
        finally:
            session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()
