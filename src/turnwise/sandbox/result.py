"""The result of a run in a sandbox: one status out of eight, and what the code wrote.

Every status but `infrastructure` is the doing of the code, and an agent is graded on it.
`infrastructure` is decided by the host from what the code cannot write: that a sandbox was not
started, or ended without a report.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from turnwise.errors import InfrastructureError
from turnwise.sandbox.settings import Limits


class Status(StrEnum):
    """The ways in which a run ends."""

    OK = "ok"
    NONZERO = "nonzero"
    """It ended by itself with another exit status than 0; a cell: it raised. Without an exit status
    it did not begin: its files cannot be written in a folder of the sandbox (see `error`)."""
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out_of_memory"
    """All processes together held too much; or it ended with Python's MemoryError as its last
    word, which code can also print."""
    CPU_LIMIT = "cpu_limit"
    OUTPUT_LIMIT = "output_limit"
    SIGNAL = "signal"
    """It was ended by a signal, as by a crash or by itself."""
    INFRASTRUCTURE = "infrastructure"
    """The sandbox failed: not graded."""


@dataclass(frozen=True)
class Output:
    """The bytes written to one stream: its beginning and its end."""

    head: bytes = b""
    tail: bytes = b""
    count: int = 0
    """Bytes written in all; more than are kept if the middle was left out."""

    @property
    def text(self) -> str:
        """The text to read: without NUL and escape sequences, and how much was left out."""
        left_out = self.count - len(self.head) - len(self.tail)
        if not left_out:
            return _readable(self.head + self.tail)
        note = f"\n[... {left_out} bytes left out ...]\n"
        return _readable(self.head) + note + _readable(self.tail)


@dataclass(frozen=True)
class Result:
    """One run. Example: `Sandbox().run_python("print(1)")` gives status ok and stdout "1\\n"."""

    status: Status
    tier: str
    limits: Limits
    exit_status: int | None = None
    """The code's exit status; None if it was ended by a signal, and for cells."""
    signal: int | None = None
    stdout: Output = Output()
    stderr: Output = Output()
    seconds: float = 0.0
    """Time from the start of the code to its end."""
    queued: float = 0.0
    """Seconds before, in which a place or a sandbox was waited for."""
    cpu_seconds: float = 0.0
    """0 for cells of a session that goes on."""
    peak_memory: int = 0
    """Bytes: the largest process, or all together when they were looked at."""
    killed: int = 0
    """Processes that were left behind, and killed."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Files gathered from the work folder, by relative path."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Allow-listed files that were not gathered, and why."""
    error: str = ""
    """The class of what a cell raised (the code says so itself), or what failed."""
    limited_by: str = "rlimits"
    """The means that kept the limits of memory and processes: `measured`, the limits of each
    process, and looks at all that all of them hold; `rlimits`, the same with looks that do not see
    buffers of sockets and files in memory; `docker`, its control group; `service`, in ways of its
    own."""
    runtime: str = ""
    """The runtime of the code: version and hash of the interpreter, or the image."""

    def checked(self) -> "Result":
        """This result, if the sandbox worked; raises InfrastructureError if it did not."""
        if self.status is Status.INFRASTRUCTURE:
            raise InfrastructureError(f"sandbox ({self.tier}): {self.error}")
        return self


# Escape sequences: CSI (colours, the cursor), OSC (titles, links), and those of two characters.
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")


def _readable(data: bytes) -> str:
    # An ESC that is left stands in no whole sequence, as where the output was cut.
    text = _ESCAPE.sub("", data.decode(errors="replace"))
    return text.replace("\x00", "").replace("\x1b", "")
