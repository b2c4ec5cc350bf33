"""Shell and file tools over a folder of the episode's own, kept as plain data between calls.

Derive an environment from `WorkspaceTools` too and set the folder in `reset`:

    class Repair(WorkspaceTools, Environment):
        def __init__(self) -> None:
            self.sandbox = Sandbox()            # the prototype's, shared by all episodes
        async def reset(self, task, seed):
            self.workspace = Workspace(self.sandbox, task.data["files"])
            ...

Each shell call runs in a sandbox of its own, into which the folder is brought and from which it is
taken back: files stay, processes and variables do not. A call that goes beyond a limit leaves the
folder as it was. So the folder is the complete state of the episode, and can be saved.
"""

import base64
import inspect
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from turnwise.errors import ToolError
from turnwise.sandbox.base import CodeSandbox
from turnwise.sandbox.result import Result, Status
from turnwise.sandbox.settings import Limits
from turnwise.tools.tool import consequential, tool
from turnwise_sandbox import folder
from turnwise_sandbox.artefacts import plain_path
from turnwise_sandbox.tools.patches import patched
from turnwise_sandbox.tools.python import ENDINGS, observation

SHOWN_LINES = 200
"""Lines of a file shown in one reading, at most."""
MAX_BYTES = 16 << 20
"""Bytes of all files together, at most."""
UNCHANGED = "The files are as they were before."
_PROGRAM = inspect.getsource(folder) + "\n\nmain()\n"

Kind = Literal["file", "folder", "link"]


@dataclass(frozen=True)
class Entry:
    """Example: Entry("file", b"print(1)\\n", 0o644). A link's content is where it leads."""

    kind: Kind = "file"
    content: bytes = b""
    mode: int = 0o644


class Workspace:
    """A folder, and what can be done in it. Example: Workspace(sandbox, {"a.py": "x = 1\\n"})."""

    def __init__(
        self,
        sandbox: CodeSandbox,
        files: Mapping[str, str | bytes] = {},
        limits: Limits | None = None,
    ) -> None:
        """`files` by relative path. Raises ValueError for a path that leaves the folder."""
        self.sandbox, self.limits = sandbox, limits
        self.entries: dict[str, Entry] = {}
        for path, content in files.items():
            if not plain_path(path):
                raise ValueError(f"{path!r} is not a plain relative path")
            data = content.encode() if isinstance(content, str) else content
            self.entries[path] = Entry(content=data)

    @property
    def files(self) -> dict[str, bytes]:
        """Regular files by path, for a verifier: what the agent left, untrusted."""
        entries = sorted(self.entries.items())
        return {path: entry.content for path, entry in entries if entry.kind == "file"}

    def shell(self, command: str) -> str:
        """Run a command with `sh`; returns what it wrote, and how it ended if not well. Raises
        InfrastructureError if the sandbox failed."""
        result, problem = self.run(command)
        status = result.exit_status if result.status not in ENDINGS else 0
        return observation(result, False, f"exit status {status}" if status else "", problem)

    def run(self, command: str, environment: Mapping[str, str] = {}) -> tuple[Result, str]:
        """Run a command as `shell` does, for a program: the result, and why the files could not be
        taken back. Raises InfrastructureError if the sandbox failed."""
        if not command.strip() or "\0" in command:
            raise ToolError("the command is empty, or has a character that no command has")
        files = {folder.PACKED: self.packed(), folder.COMMAND: command.encode(errors="replace")}
        result = self.sandbox.run_python(
            _PROGRAM,
            files=files,
            environment=environment,
            collect=[folder.PACKED],
            limits=self.limits,
        ).checked()
        return result, self._take_back(result)

    def read(self, path: str, first: int = 1, lines: int = SHOWN_LINES) -> str:
        """Lines of a text file. Raises ToolError for a path without a file."""
        text = self._text(path).split("\n")
        if first < 1 or lines < 1:
            raise ToolError("first and lines are 1 or more")
        found = text[first - 1 : first - 1 + min(lines, SHOWN_LINES)]
        if not found:
            raise ToolError(f"{path} has {len(text)} lines only")
        left = len(text) - (first - 1 + len(found))
        note = [f"[{left} more lines: read from line {first + len(found)} on]"] if left else []
        return "\n".join([*found, *note]) or "(empty)"

    def write(self, path: str, text: str) -> str:
        self._put(path, text.encode(errors="replace"))
        return "written"

    def edit(self, patch: str) -> str:
        """Apply a unified diff, all of it or nothing."""
        texts = {
            path: content.decode(errors="surrogateescape") for path, content in self.files.items()
        }
        changed = patched(texts, patch)
        before = dict(self.entries)
        for path in (path for path, text in changed.items() if text is None):
            self.entries.pop(path, None)  # none for what the patch itself has made
        try:
            for path, text in changed.items():
                if text is not None:
                    self._put(path, text.encode(errors="surrogateescape"))
        except ToolError:
            self.entries = before
            raise
        return f"changed: {', '.join(sorted(changed))}"

    def delete(self, path: str) -> str:
        """Delete a file, or a folder with all that is in it."""
        if path not in self._known():
            raise ToolError(f"there is no file {path!r}")
        inside = [name for name in self.entries if name == path or name.startswith(f"{path}/")]
        for name in inside:
            del self.entries[name]
        return "deleted"

    def packed(self) -> bytes:
        """The folder as bytes (see `folder.pack`), the same for the same folder."""
        letters = {kind: letter for letter, kind in _KINDS.items()}
        rows = (
            (path, letters[entry.kind], entry.mode, entry.content)
            for path, entry in sorted(self.entries.items())
        )
        return b"".join(folder.pack(rows))

    def snapshot(self) -> bytes:
        rows = [
            [path, entry.kind, base64.b64encode(entry.content).decode(), entry.mode]
            for path, entry in sorted(self.entries.items())
        ]
        return json.dumps(rows).encode()

    def restore(self, state: bytes) -> None:
        self.entries = {
            path: Entry(kind, base64.b64decode(content), mode)
            for path, kind, content, mode in json.loads(state)
        }

    def _take_back(self, result: Result) -> str:
        """Make the folder what the command left; otherwise the reason why it stays as it was."""
        if result.status not in (Status.OK, Status.NONZERO):
            return UNCHANGED
        if folder.PACKED not in result.files:
            reason = result.refused.get(folder.PACKED, "they could not be packed")
            return f"The files could not be taken back ({reason}). {UNCHANGED}"
        limits = self.limits or self.sandbox.settings.limits
        try:
            entries = taken(result.files[folder.PACKED], limits.files)
        except ValueError as error:
            return f"The files could not be taken back ({error}). {UNCHANGED}"
        self.entries = entries
        return ""

    def _known(self) -> set[str]:
        """Paths of all entries and of the folders that they are in."""
        parts = [path.split("/") for path in self.entries]
        return {"/".join(part[:depth]) for part in parts for depth in range(1, len(part) + 1)}

    def _text(self, path: str) -> str:
        entry = self.entries.get(path)
        if entry is None:
            ordered = sorted(self.files, key=lambda name: (name.startswith("."), name))
            names = ", ".join(ordered[:20]) or "none"
            raise ToolError(f"there is no file {path!r}; files: {names}")
        if entry.kind != "file":
            raise ToolError(f"{path} is a {entry.kind}")
        if b"\0" in entry.content:
            raise ToolError(f"{path} is no text: {len(entry.content)} bytes")
        return entry.content.decode(errors="replace")

    def _put(self, path: str, content: bytes) -> None:
        """Write a file, which keeps its mode."""
        if not plain_path(path) or not path.isprintable():
            raise ToolError(f"{path!r}: give a path below the folder, such as src/main.py")
        parents = ["/".join(path.split("/")[:depth]) for depth in range(1, path.count("/") + 1)]
        for parent in parents:
            if parent in self.entries and self.entries[parent].kind != "folder":
                raise ToolError(f"{parent} is a {self.entries[parent].kind}, not a folder")
        if any(name.startswith(f"{path}/") for name in self.entries):
            raise ToolError(f"{path} is a folder")
        old = self.entries.get(path, Entry())
        if old.kind != "file":
            raise ToolError(f"{path} is a {old.kind}")
        others = sum(len(one.content) for name, one in self.entries.items() if name != path)
        if others + len(content) > MAX_BYTES:
            raise ToolError(f"the files would be more than {MAX_BYTES >> 20} MiB together")
        self.entries[path] = Entry("file", content, old.mode)


class WorkspaceTools:
    """The tools of a workspace, to derive from. Those that change something are marked."""

    workspace: Workspace

    @tool
    @consequential("write")
    def shell(self, command: str) -> str:
        """Run a shell command in the folder. Files stay for the next call; nothing else does."""
        return self.workspace.shell(command)

    @tool
    async def read_file(self, path: str, first: int = 1, lines: int = SHOWN_LINES) -> str:
        """Read lines of a file, from line `first` on."""
        return self.workspace.read(path, first, lines)

    @tool
    @consequential("write")
    async def write_file(self, path: str, text: str) -> str:
        """Write a new file, or over an old one."""
        return self.workspace.write(path, text)

    @tool
    @consequential("write")
    async def edit_file(self, patch: str) -> str:
        """Change files by a unified diff (--- a/FILE, +++ b/FILE, @@ hunks)."""
        return self.workspace.edit(patch)

    @tool
    @consequential("delete")
    async def delete_file(self, path: str) -> str:
        """Delete a file or a folder."""
        return self.workspace.delete(path)


def taken(data: bytes, most: int) -> dict[str, Entry]:
    """The entries of a packed folder that is not trusted; paths that leave it are left out. Raises
    ValueError for broken data, for more than `most`, and beyond MAX_BYTES."""
    found: dict[str, Entry] = {}
    left = MAX_BYTES
    for path, kind, mode, content in folder.unpack(data, most):
        if not plain_path(path):
            continue
        left -= len(content)
        if left < 0:
            raise ValueError(f"they are more than {MAX_BYTES >> 20} MiB together")
        found[path] = Entry(_KINDS[kind], content, mode)
    return found


_KINDS: dict[str, Kind] = {"f": "file", "d": "folder", "l": "link"}
