"""Random small folders: logs, tables, notes, scripts, and what is left lying about.

Not here: what is asked of them (`requests.py`).
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass

from turnwise_sandbox.tools.workspace import Entry

WORDS = (
    *("apple", "bridge", "candle", "delta", "ember", "forest", "garden", "harbor", "island"),
    *("jungle", "kettle", "ladder", "meadow", "needle", "orchid", "pepper", "quartz", "river"),
)
LEVELS = ("ERROR", "WARN", "INFO", "DEBUG")
CITIES = ("Rome", "Oslo", "Bath", "Lyon")


@dataclass(frozen=True)
class File:
    """Example: File("echo hi\\n", runs=True)."""

    text: str
    runs: bool = False


Folder = Mapping[str, File]


def draw_folder(stream: random.Random) -> dict[str, File]:
    """Eight to fourteen files in up to five folders."""
    folder: dict[str, File] = {}
    for name in stream.sample(WORDS, stream.randint(2, 3)):
        folder[f"logs/{name}.log"] = File(_log(stream))
    for name in stream.sample(WORDS, stream.randint(1, 2)):
        folder[f"data/{name}.csv"] = File(_table(stream))
    for name in stream.sample(WORDS, stream.randint(2, 3)):
        folder[f"{stream.choice(['notes', 'data'])}/{name}.txt"] = File(_note(stream))
    for name in stream.sample(WORDS, stream.randint(1, 2)):
        folder[f"bin/{name}.sh"] = File(f"#!/bin/sh\necho {stream.choice(WORDS)}\n")
    for name in stream.sample(WORDS, stream.randint(2, 4)):
        place = stream.choice(["", "notes/", "logs/", "old/"])
        text = "" if stream.random() < 0.5 else f"{stream.choice(WORDS)}\n"
        folder[f"{place}{name}{stream.choice(['.tmp', '.bak'])}"] = File(text)
    return folder


def entries_of(folder: Folder) -> dict[str, Entry]:
    """The folder as a workspace has it."""
    return {
        path: Entry("file", file.text.encode(), 0o755 if file.runs else 0o644)
        for path, file in folder.items()
    }


def state_of(entries: Mapping[str, Entry]) -> dict[str, list[object]]:
    """The judged part of a workspace: files and links with their content, and which can be run by
    their owner. Empty folders, times and other permissions do not."""
    return {
        path: [entry.kind, entry.content.hex(), entry.kind == "file" and bool(entry.mode & 0o100)]
        for path, entry in sorted(entries.items())
        if entry.kind != "folder"
    }


def lines_of(text: str) -> list[str]:
    """Lines without their ends."""
    return text.split("\n")[:-1]


def rows_of(text: str) -> list[list[str]]:
    """Lines of a table, in cells."""
    return [line.split(",") for line in lines_of(text)]


def _log(stream: random.Random) -> str:
    rows = [
        f"{stream.choice(LEVELS)} {stream.randint(100, 999)} {stream.choice(WORDS)}"
        for _ in range(stream.randint(4, 12))
    ]
    return "".join(f"{row}\n" for row in rows)


def _table(stream: random.Random) -> str:
    rows = [
        f"{stream.choice(WORDS)},{stream.choice(CITIES)},{stream.randint(10, 99)}"
        for _ in range(stream.randint(4, 8))
    ]
    return "".join(f"{row}\n" for row in rows)


def _note(stream: random.Random) -> str:
    rows = [" ".join(stream.choices(WORDS, k=stream.randint(1, 3))) for _ in range(5)]
    return "".join(f"{row}\n" for row in rows)
