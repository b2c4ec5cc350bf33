"""The settings of a sandbox: the tier of isolation, and limits."""

import dataclasses
import math
from dataclasses import dataclass
from typing import Literal

from turnwise.errors import ConfigError

TIERS = ("bubblewrap", "unisolated")
"""Tiers of this machine; the last one isolates nothing."""

MEBIBYTE = 1 << 20


@dataclass(frozen=True)
class Limits:
    """The limits of one sandbox. A session is one sandbox: all its cells share the limits, but for
    `seconds` and `output`, which each cell has anew."""

    seconds: float = 10.0
    """Wall-clock time of a run or a cell, kept by the host; waiting for a free place is not in."""
    cpu_seconds: float = 10.0
    """Processor time of all processes together, looked at every 0.05 s; and of each one, by the
    kernel."""
    memory: int = 512 * MEBIBYTE
    """Bytes: address space of each process, by the kernel; and what all processes hold together,
    looked at every 0.05 s. Python needs 64 MiB to start."""
    processes: int = 32
    """Processes and threads at once."""
    open_files: int = 128
    """Descriptors of each process."""
    disk: int = 64 * MEBIBYTE
    """Bytes in the work folder, in /tmp and in /dev/shm each, held in memory (unisolated: in each
    file, on the disk), and the most that is gathered."""
    files: int = 4096
    """Files, folders and links in these places together (unisolated: not limited), and the most
    that are gathered."""
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
    """The settings of a sandbox. Example: SandboxSettings(limits=Limits(seconds=5.0), warm=4)."""

    tier: Literal["auto", "bubblewrap", "unisolated"] = "auto"
    """`bubblewrap` isolates; `unisolated` code can do all that you can. `auto` is bubblewrap, or
    with a warning unisolated where that does not work."""
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
    kind: str = "local"
    """Where: `local`, on this machine; `docker`, in containers; `sandbox_fusion`, at a service with
    SandboxFusion's protocol; or a class of your own (`path/to/file.py:Name`)."""
    image: str = "python:3.13-slim"
    """Image, for kind docker: there already, with Python 3.11 or later as `python3`."""
    docker: str = "docker"
    """Command line to use, for kind docker: `docker` or `podman`."""
    url: str = ""
    """Address of the service, for kind sandbox_fusion, as http://127.0.0.1:8080."""
    answer_seconds: float = 30.0
    """Time, for kind sandbox_fusion, beyond the code's own, for the service's queue and start."""

    def __post_init__(self) -> None:
        self._check_kind()
        if not (math.isfinite(self.answer_seconds) and self.answer_seconds > 0):
            raise ConfigError("sandbox: answer_seconds is above 0")
        if self.warm < 0 or self.concurrency < 1:
            raise ConfigError("sandbox: warm is 0 or more, concurrency 1 or more")
        for package in self.packages:
            if not package.startswith("/"):
                raise ConfigError(f"sandbox package folder {package!r}: write the whole path")

    def _check_kind(self) -> None:
        if self.tier not in ("auto", *TIERS):
            raise ConfigError(
                f"sandbox tier {self.tier!r}: it is one of {', '.join(('auto', *TIERS))}"
            )
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        for kind, names in _ONLY_OF.items():
            for name in names:
                if kind != self.kind and getattr(self, name) != defaults[name]:
                    raise ConfigError(
                        f"sandbox {name} is of kind {kind}, and kind is {self.kind}: leave it out"
                    )


_ONLY_OF = {
    "local": ("tier", "python", "packages"),
    "docker": ("image", "docker"),
    "sandbox_fusion": ("url", "answer_seconds"),
}
"""Settings that only one kind reads."""
