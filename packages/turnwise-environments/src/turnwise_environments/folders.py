"""Folders of tasks that have a machine or a container elsewhere: as plain data, and their paths.

Tests compare what an agent left with what they bring: a link to the latter would compare it with
itself, so links are followed, from the folder alone. Not here: other ways to read a file while
tests run, which programs have.
"""

import base64
import os
from collections.abc import Mapping

from turnwise.errors import ConfigError
from turnwise.sandbox.base import CodeSandbox
from turnwise.types import Task
from turnwise_sandbox.tools.workspace import Entry, Workspace

ROOT = "/work/workspace"
"""The path of the folder while a command runs."""
CLEAN = "export HOME=$(mktemp -d) PYTHONNOUSERSITE=1 PYTHONSAFEPATH=1 GIT_CONFIG_GLOBAL=/dev/null\n"
"""The lines before tests and checks: nothing that the agent left at home, or where they begin, runs
by itself."""
PLAIN = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "etc")
"""Folders of the system that a link may lead to: none of them leads back."""
MOST_LINKS = 40
"""Links on the way to one file, at most; Linux has the same bound."""


def check_place(sandbox: CodeSandbox) -> None:
    """Raise ConfigError for a sandbox whose folder is elsewhere: tasks name files by their path."""
    tier = sandbox.find_tier()
    if tier not in ("bubblewrap", "docker"):
        raise ConfigError(
            f"sandbox: these tasks need a folder at {ROOT}, which {tier} does not have: install "
            'bubblewrap, or set sandbox.kind = "docker"'
        )


def leads_out(path: str, entries: Mapping[str, Entry], brought: tuple[str, ...]) -> bool:
    """Whether a link of the folder leads to what is brought into it later (`brought`), to the
    folder itself or above, or anywhere but to a plain place of the system. Links on the way are
    followed; one that goes round leads out."""
    place, todo, links = os.path.dirname(path), [os.path.basename(path)], 0
    while todo:
        part = todo.pop()
        if part in ("", "."):
            continue
        if part == "..":
            if not place:
                return True
            place = os.path.dirname(place)
            continue
        place = f"{place}/{part}" if place else part
        entry = entries.get(place)
        if entry is None or entry.kind != "link":
            continue
        links += 1
        target = os.fsdecode(entry.content)
        if links > MOST_LINKS or not target:
            return True
        place = os.path.dirname(place)
        if target.startswith("/"):
            parts = [one for one in target.split("/") if one not in ("", ".")]
            if parts and parts[0] in PLAIN and ".." not in (*parts, *todo):
                return False
            if parts[:2] != ROOT.split("/")[1:]:
                return True
            place, target = "", "/".join(parts[2:])
        todo += reversed(target.split("/"))
    return not place or any(f"{place}/".startswith(f"{one}/") for one in brought)


def is_folder(path: str, entries: Mapping[str, Entry]) -> bool:
    made = path in entries and entries[path].kind == "folder"
    return made or any(name.startswith(f"{path}/") for name in entries)


def entries(task: Task) -> dict[str, Entry]:
    """The entries that an episode's folder begins with."""
    return {
        path: Entry(kind, base64.b64decode(content), mode)
        for path, kind, content, mode in task.data["folder"]
    }


def workspace_of(sandbox: CodeSandbox, found: Mapping[str, Entry]) -> Workspace:
    """A workspace that begins with these entries."""
    made = Workspace(sandbox)
    made.entries = dict(found)
    return made


def plain(found: Mapping[str, Entry]) -> list[list[object]]:
    """Entries as plain data, for a task."""
    return [
        [path, entry.kind, base64.b64encode(entry.content).decode(), entry.mode]
        for path, entry in sorted(found.items())
    ]
