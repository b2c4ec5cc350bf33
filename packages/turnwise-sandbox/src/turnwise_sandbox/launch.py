"""The host's side of the launcher: one process, asked over a socket, that starts sandboxes."""

import hashlib
import itertools
import json
import os
import platform
import shutil
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Protocol

import turnwise
import turnwise_sandbox
from turnwise.errors import InfrastructureError
from turnwise.sandbox.settings import Limits, SandboxSettings
from turnwise_sandbox import protocol, seccomp

START_SECONDS = 20.0
"""Limit of everything that is not the code's own; beyond it the machine is at fault."""

FLAGS = ("-S", "-s", "-P", "-B")
"""No site-packages, no folder of a script, no bytecode. Not -I, which ignores PYTHONHASHSEED."""

_BOOT = (
    "import sys, types\n"
    "for name, place in zip(('turnwise', 'turnwise_sandbox'), sys.argv[2:]):\n"
    "    sys.modules[name] = types.ModuleType(name)\n"
    "    sys.modules[name].__path__ = [place]\n"
    "from turnwise_sandbox import launcher\n"
    "launcher.main()\n"
)
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_SYSTEM_FILES = ("/etc/alternatives", "/etc/ld.so.cache")


class Ticket:
    """One sandbox that was asked for."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.over = threading.Event()
        """Set when none of its processes is left, or it was never started."""
        self.failure = ""
        self.status: int | None = None
        """Exit of its first process, as os.waitpid gives it."""


class Starter(Protocol):
    """The starter and ender of sandboxes: the seam between a tier's machinery and `Sandbox`."""

    interpreter: str
    """The code's interpreter, by its path as the code sees it."""
    limited_by: str
    runtime: str
    """Version and hash of what runs the code: goes into every result."""

    @property
    def ended(self) -> bool:
        """It is gone, and with it all that it has started: another one is needed."""

    def start(self, spec: protocol.Message, descriptors: Sequence[int]) -> Ticket:
        """Ask for a sandbox. Its supervisor gets stdout, stderr, control and channel, which the
        caller closes."""

    def kill(self, ticket: Ticket) -> None:
        """Kill all that is in a sandbox; `ticket.over` says when it is done."""

    def close(self) -> None:
        """End everything; returns when it is gone. Idempotent."""


class Launch:
    """A running launcher: the starter of the tiers of this machine. `Sandbox` has one."""

    limited_by: str = "rlimits"

    def __init__(self, settings: SandboxSettings) -> None:
        """Start the launcher. Raises InfrastructureError if it does not answer."""
        self.settings = settings
        self.interpreter = str(Path(settings.python or sys.executable).resolve())
        self.tickets: dict[int, Ticket] = {}
        self.numbers = itertools.count(1)
        self.lock = threading.Lock()
        self.closed = False
        # Of this kind, since it keeps messages, and the descriptors sent with them, apart.
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        packages = [package.__path__[0] for package in (turnwise, turnwise_sandbox)]
        self.process = subprocess.Popen(
            [self.interpreter, *FLAGS, "-c", _BOOT, str(theirs.fileno()), *packages],
            env=environment(self.interpreter, settings.packages),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
        theirs.close()
        self.socket.settimeout(START_SECONDS)
        ready = self._receive()
        if not ready:
            raise InfrastructureError(f"the sandbox's launcher ({self.interpreter}) did not start")
        self.runtime = _runtime(json.loads(ready)["version"], self.interpreter, settings.packages)
        self.socket.settimeout(None)
        self.listener = threading.Thread(target=self._listen, daemon=True)
        self.listener.start()

    @property
    def ended(self) -> bool:
        return self.process.poll() is not None

    def start(self, spec: protocol.Message, descriptors: Sequence[int]) -> Ticket:
        with self.lock:
            ticket = Ticket(next(self.numbers))
            self.tickets[ticket.number] = ticket
            message = json.dumps({"op": "start", "id": ticket.number, "spec": spec}).encode()
            try:
                socket.send_fds(self.socket, [message], descriptors)
            except OSError as error:
                del self.tickets[ticket.number]
                ticket.failure = f"the launcher is gone ({error})"
                ticket.over.set()
        return ticket

    def kill(self, ticket: Ticket) -> None:
        with self.lock:
            try:
                self.socket.send(json.dumps({"op": "kill", "id": ticket.number}).encode())
            except OSError:
                ticket.over.set()  # without its launcher no sandbox lives

    def close(self) -> None:
        with self.lock:
            if self.closed:
                return
            self.closed = True
            self.socket.shutdown(socket.SHUT_RDWR)  # it ends, and so does `_listen`
        try:
            self.process.wait(START_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()  # the kernel then kills what it started
            self.process.wait()
        self.listener.join(START_SECONDS)
        self.socket.close()

    def _receive(self) -> bytes:
        try:
            return self.socket.recv(1 << 16)
        except OSError:
            return b""

    def _listen(self) -> None:
        while data := self._receive():
            message = json.loads(data)
            ticket = self.tickets.pop(message["id"])
            ticket.failure = message.get("failed", "")
            ticket.status = message.get("gone")
            ticket.over.set()
        for ticket in list(self.tickets.values()):  # `start` may add one meanwhile
            ticket.failure = "the launcher has ended"
            ticket.over.set()


def specification(
    settings: SandboxSettings, tier: str, starter: Starter, limits: Limits
) -> protocol.Message:
    """Everything that the launcher and the supervisor have to know of one sandbox."""
    interpreter = starter.interpreter
    prefix = str(Path(interpreter).parent.parent)
    shown = [path for path in _SYSTEM if os.path.lexists(path)]
    shown += [path for path in _SYSTEM_FILES if os.path.exists(path)]
    for folder in (prefix, *settings.packages):
        if not any(folder == one or folder.startswith(f"{one}/") for one in shown):
            shown.append(folder)
    return {
        "tier": tier,
        "limits": asdict(limits),
        "work": "/work",
        "read_only": shown,
        "bwrap": shutil.which("bwrap") or "",
        "interpreter": interpreter,
        "flags": FLAGS,
    }


def environment(interpreter: str, packages: Sequence[str] = ()) -> dict[str, str]:
    """All environment variables that code in a sandbox has. None comes from this process."""
    threads = ("OMP", "MKL", "OPENBLAS", "NUMEXPR", "VECLIB_MAXIMUM")
    values = {
        "PATH": f"{Path(interpreter).parent}:/usr/bin:/bin",
        "HOME": "/work",
        "TMPDIR": "/tmp",
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "PYTHONHASHSEED": "0",  # sets have the same order in each run
        "PYTHONDONTWRITEBYTECODE": "1",
        "SOURCE_DATE_EPOCH": "315532800",
        **{f"{name}_NUM_THREADS": "1" for name in threads},
    }
    return values | ({"PYTHONPATH": ":".join(packages)} if packages else {})


def _runtime(version: str, interpreter: str, packages: Sequence[str]) -> str:
    """Version of an interpreter, and a hash of its program and of the packages' names and sizes."""
    digest = hashlib.sha256(Path(interpreter).read_bytes())
    for folder in packages:
        for path in sorted(Path(folder).rglob("*.py")):
            digest.update(f"{path.relative_to(folder)} {path.stat().st_size}\n".encode())
    return f"python {version} sha256:{digest.hexdigest()[:16]}"


def unavailable(tier: str, python: str = "") -> str:
    """Why a tier cannot be there at all, without trying it; or nothing. `python` is the
    interpreter, by default this process's."""
    if tier == "docker":
        return ""
    if sys.platform != "linux":
        return f"sandboxes need Linux, and this is {sys.platform}"
    if python and not (os.path.isfile(python) and os.access(python, os.X_OK)):
        return f"sandbox.python {python!r} is no program: write the whole path of one"
    if tier == "bubblewrap" and platform.machine() not in seccomp.ARCHITECTURES:
        return f"the system calls of {platform.machine()} are not known"
    if tier == "bubblewrap" and not shutil.which("bwrap"):
        return "there is no bwrap on the PATH (Debian: apt install bubblewrap)"
    if tier == "unisolated" and os.geteuid() == 0 and (closed := _closed(python or sys.executable)):
        return (
            f"root's code runs as a user of its own, which may not enter {closed}, where Python "
            f"is: install bubblewrap, or set sandbox.python to one elsewhere"
        )
    return ""


def _closed(program: str) -> str:
    """The outermost folder on the way to a program that other users may not enter, or nothing."""
    folders = reversed(Path(program).resolve().parents)
    return next((str(one) for one in folders if not one.stat().st_mode & stat.S_IXOTH), "")
