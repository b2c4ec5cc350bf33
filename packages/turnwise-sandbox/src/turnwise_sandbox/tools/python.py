"""A Python tool: cells in a sandboxed session that lasts as long as the episode.

Put one in an environment and hand its `run` on as a tool:

    class Solver(Environment):
        def __init__(self) -> None:
            self.sandbox = Sandbox()            # the prototype's, shared by all episodes
        async def reset(self, task, seed):
            self.python = PythonSession(self.sandbox)
            ...
        @tool
        def python(self, code: str) -> str:
            \"""Run Python; variables are kept.\"""
            return self.python.run(code)
        async def close(self):
            self.python.close()
"""

import re

from turnwise.sandbox.base import CodeSandbox, Session
from turnwise.sandbox.result import Result, Status
from turnwise.sandbox.settings import Limits

ENDINGS = {
    Status.TIMEOUT: "stopped after {limits.seconds:g} s",
    Status.CPU_LIMIT: "stopped after {limits.cpu_seconds:g} s of processor time",
    Status.OUT_OF_MEMORY: "out of memory: {megabytes} MiB are allowed",
    Status.OUTPUT_LIMIT: "stopped: too much output",
    Status.SIGNAL: "the interpreter crashed (signal {signal})",
}
_ENDED_BADLY = re.compile(
    r"Traceback \(most recent call last\):|  File \"<code>\", line [0-9]+|"
    + "|".join(re.escape(f"[{ending.partition('{')[0]}") + ".*" for ending in ENDINGS.values())
)
LOST = "All variables are gone; the next call starts anew."


class PythonSession:
    """The session of one episode, opened by its first call."""

    def __init__(self, sandbox: CodeSandbox, limits: Limits | None = None) -> None:
        self.sandbox, self.limits = sandbox, limits
        self.session: Session | None = None

    def run(self, code: str) -> str:
        """Run a cell; returns what it printed, the value of its last expression, its errors, and
        how it ended if not well. Raises InfrastructureError if the sandbox failed."""
        if self.session is None:
            self.session = self.sandbox.open_session(limits=self.limits)
        result = self.session.run(code).checked()
        return observation(result, self.session.lost)

    def close(self) -> None:
        """End the session. Idempotent."""
        if self.session is not None:
            self.session.close()
            self.session = None


def observation(result: Result, lost: bool, *notes: str) -> str:
    """A result as the text that an agent reads, with what else there is to say of it."""
    said = ENDINGS.get(result.status, "").format(
        limits=result.limits, megabytes=result.limits.memory >> 20, signal=result.signal
    )
    parts = [result.stdout.text, result.stderr.text]
    parts += [f"[{note}]" for note in (said, LOST if lost else "", *notes) if note]
    text = "\n".join(part.rstrip("\n") for part in parts if part.strip())
    return text or "(no output)"


def tells_of_failure(text: str) -> bool:
    """Whether an observation has a traceback, or says that the program was stopped.

    >>> tells_of_failure("4"), tells_of_failure("[stopped after 5 s]")
    (False, True)
    """
    return any(_ENDED_BADLY.fullmatch(line) for line in text.split("\n"))
