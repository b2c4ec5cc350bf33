"""What a sandbox allows: the tier of isolation, and limits that mean what they say.

Not here: how a limit is enforced (warden.py, worker.py), and what a tier protects from
(docs/sandbox.md).
"""

import dataclasses
import math
from dataclasses import dataclass
from typing import Literal

from turnwise.errors import ConfigError

TierName = Literal["bubblewrap", "namespaces", "rlimits"]
TIERS: tuple[TierName, ...] = ("bubblewrap", "namespaces", "rlimits")
"""From the strongest to the weakest; the last one isolates nothing."""

MEBIBYTE = 1 << 20


@dataclass(frozen=True)
class Limits:
    """What one sandbox may use. A session is one sandbox: all its cells share the limits, but for
    `seconds` and `output`, which each cell has anew."""

    seconds: float = 10.0
    """Wall-clock time of a run or a cell, kept by the host; waiting for a free place is not in."""
    cpu_seconds: float = 10.0
    """Processor time of all processes together, looked at every 0.05 s; and of each one, by the
    kernel, in whole seconds."""
    memory: int = 512 * MEBIBYTE
    """Bytes: address space of each process, by the kernel; and what all processes together hold,
    looked at every 0.05 s. Under 64 MiB Python does not start."""
    processes: int = 32
    """Processes and threads at once."""
    open_files: int = 128
    """Descriptors of each process."""
    disk: int = 64 * MEBIBYTE
    """Bytes in the work folder, /tmp and /dev/shm together (bubblewrap: in each; rlimits: in each
    file), held in memory. Also the most that is gathered from it."""
    files: int = 4096
    """Files, folders and links in the same place (not limited under bubblewrap and rlimits)."""
    output: int = 8 * MEBIBYTE
    """Bytes on stdout and stderr, each, at which the code is killed."""
    shown: int = 16384
    """Bytes of each that are kept: the first half and the last half of it."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if not (math.isfinite(value) and value > 0):
                raise ConfigError(f"sandbox limit {field.name} = {value}: it has to be above 0")
        if self.memory < 64 * MEBIBYTE:
            raise ConfigError(
                f"sandbox limit memory = {self.memory} bytes: Python needs {64 * MEBIBYTE} or more"
            )
        if self.files < 16:
            raise ConfigError(f"sandbox limit files = {self.files}: 16 are the least")


@dataclass(frozen=True)
class SandboxSettings:
    """How code is run. Example: SandboxSettings(limits=Limits(seconds=5.0), warm=4)."""

    tier: Literal["auto", "bubblewrap", "namespaces", "rlimits"] = "auto"
    """`auto` takes the strongest that works here, down to `namespaces`."""
    allow_unisolated: bool = False
    """Let `auto` go down to `rlimits`, and let `rlimits` be asked for. The code is then limited
    but not isolated: only for code that one would run oneself."""
    limits: Limits = Limits()
    python: str = ""
    """The interpreter of the code and of the launcher, 3.11 or later; default: this one, without
    its site-packages."""
    packages: tuple[str, ...] = ()
    """Folders, readable by all, that the code sees read-only and imports from."""
    warm: int = 2
    """Sandboxes kept ready; 0 starts each when it is needed."""
    concurrency: int = 8
    """Runs and cells at once; others wait. A session between two cells is not counted."""

    def __post_init__(self) -> None:
        if self.tier not in ("auto", *TIERS):
            raise ConfigError(
                f"sandbox tier {self.tier!r}: it is auto or one of {', '.join(TIERS)}"
            )
        if self.tier == "rlimits" and not self.allow_unisolated:
            raise ConfigError(
                "sandbox tier rlimits isolates nothing: set allow_unisolated = true to take it"
            )
        if self.warm < 0 or self.concurrency < 1:
            raise ConfigError("sandbox: warm is 0 or more, concurrency 1 or more")
        for package in self.packages:
            if not package.startswith("/"):
                raise ConfigError(f"sandbox package folder {package!r}: write the whole path")
