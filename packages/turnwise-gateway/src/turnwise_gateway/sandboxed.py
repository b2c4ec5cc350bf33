"""An agent's program in a sandbox of this machine, whose one way out is the gateway.

Each episode has a sandbox of its own, into which the environment's folder is brought and from which
it is taken back when the program has ended.
"""

import asyncio
import shlex
import shutil
import socket
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from turnwise.errors import ConfigError, InfrastructureError
from turnwise.sandbox.choice import make_sandbox
from turnwise.sandbox.result import Result, Status
from turnwise.sandbox.settings import MEBIBYTE, Limits
from turnwise.tools.tool import in_thread
from turnwise.types import Task
from turnwise_gateway import forward
from turnwise_gateway.address import Address, blotted
from turnwise_gateway.programs import SHOWN, Returned, variables
from turnwise_gateway.session import Session
from turnwise_sandbox import folder as packing
from turnwise_sandbox.sandbox import Sandbox
from turnwise_sandbox.tools.workspace import Workspace, taken

LIMITS = Limits(
    seconds=86_400.0,  # the episode's own deadline ends it
    cpu_seconds=3_600.0,
    memory=16_384 * MEBIBYTE,  # of address space, of which Node reserves more than 10 GiB
    processes=256,
    open_files=1024,
    disk=512 * MEBIBYTE,
    files=65_536,
)
"""Limits of an agent's sandbox, unless the recipe changes them."""
NAME = "gateway"


class UnixFolder:
    """A folder that sandboxes are shown read-only: the gateway's socket, and the forwarder."""

    def __init__(self) -> None:
        self._path: Path | None = None

    @property
    def place(self) -> Path:
        assert self._path is not None
        return self._path / NAME

    def make(self) -> socket.socket:
        """A socket that listens. The secret in an episode's address is what protects it: users of
        a sandbox, who are others, have to be able to connect. Raises InfrastructureError."""
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._path = Path(tempfile.mkdtemp(prefix="turnwise-gateway-"))
            self._path.chmod(0o755)
            shutil.copy(forward.__file__, self._path / "forward.py")
            (self._path / "forward.py").chmod(0o644)
            listening.bind(str(self.place))
            self.place.chmod(0o666)
        except OSError as error:
            listening.close()
            self.remove()
            raise InfrastructureError(
                f"the gateway has no socket in {tempfile.gettempdir()}: {error}: let TMPDIR name "
                "another folder, with a short path"
            ) from None
        listening.listen(2048)
        return listening

    def remove(self) -> None:
        """Remove it. Idempotent."""
        if self._path is not None:
            shutil.rmtree(self._path, ignore_errors=True)
            self._path = None


class SandboxedPlayer:
    """A program in a sandbox. Example: SandboxedPlayer(("node", "/opt/agent.mjs"), {})."""

    def __init__(self, command: tuple[str, ...], table: Mapping[str, Any]) -> None:
        """`table` is as `[sandbox]` of a recipe. Raises ConfigError where it asks for a sandbox
        that is not of this machine, or that does not work here."""
        kind = table.get("kind", "local")
        if kind != "local":
            raise ConfigError(
                f"agent.sandbox.kind is {kind!r}, from which the gateway of this process cannot be "
                "reached with the network closed: leave kind out for a sandbox of this machine, or "
                "start a container in agent.command yourself"
            )
        if table.get("tier") == "unisolated":
            raise ConfigError(
                "agent.sandbox.tier unisolated is no sandbox: leave agent.sandbox out"
            )
        self._command, self._table = command, {"warm": 0, "concurrency": 1, **table}
        if self._table.get("tier", "auto") == "auto":
            self._table["tier"] = "bubblewrap"
        with self._sandbox() as sandbox:
            sandbox.find_tier()

    def _sandbox(self, *packages: str) -> Sandbox:
        shown = [*self._table.get("packages", ()), *packages]
        made = make_sandbox(self._table | {"packages": tuple(shown)}, LIMITS)
        assert isinstance(made, Sandbox)  # of kind local
        return made

    async def play(
        self, task: Task, address: Address, session: Session, folder: Path | None = None
    ) -> Returned:
        """See `Agent`. Cancelled, it takes nothing back."""
        assert address.socket is not None  # the gateway knows that the agent is sandboxed
        sandbox = self._sandbox(str(address.socket.parent))
        inside = replace(address, server=forward.PLACE)
        words = [part.replace("{prompt}", task.prompt) for part in self._command]
        python = str(Path(sandbox.settings.python or sys.executable).resolve())
        program = str(address.socket.parent / "forward.py")
        # A program has its own settings beside the folder, not in it.
        command = shlex.join([python, "-I", "-S", program, str(address.socket), *words])
        work = partial(_run, sandbox, command, variables(task, inside, session.names[0]), folder)
        # No thread can be cancelled: it ends when the sandbox is closed.
        running = asyncio.ensure_future(in_thread(work))
        try:
            result, problem = await asyncio.shield(running)
        finally:
            await in_thread(sandbox.close)
            await asyncio.wait([running])
        return _returned(words[0], result, problem, address.secret)


def _run(
    sandbox: Sandbox, command: str, environment: Mapping[str, str], folder: Path | None
) -> tuple[Result, str]:
    """Run the command, and make the folder what it left; otherwise say why it stays as it was."""
    workspace = Workspace(sandbox)
    if folder is not None:
        packed = b"".join(packing.pack(packing.read(str(folder))))
        workspace.entries = taken(packed, sandbox.settings.limits.files)
    result, problem = workspace.run(command, environment)
    if folder is not None and result.status in (Status.OK, Status.NONZERO) and not problem:
        _put(folder, workspace)
    return result, problem


def _put(folder: Path, workspace: Workspace) -> None:
    """Make a folder's files those of a workspace. Links are left out: outside of the sandbox they
    could lead anywhere."""
    for old in folder.iterdir():
        shutil.rmtree(old) if old.is_dir() and not old.is_symlink() else old.unlink()
    for path, entry in sorted(workspace.entries.items()):
        place = folder / path
        if entry.kind == "folder":
            place.mkdir(parents=True, exist_ok=True)
        elif entry.kind == "file":
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(entry.content)
            place.chmod(entry.mode | 0o600)


def _returned(program: str, result: Result, problem: str, secret: str) -> Returned:
    said = blotted((result.stdout.text + result.stderr.text).strip(), secret)[-SHOWN:]
    if result.status is Status.OK:
        return Returned(error=problem)
    code = f"code {result.exit_status}" if result.status is Status.NONZERO else str(result.status)
    return Returned(error=f"{program} ended with {code}: {said} {problem}".strip())
