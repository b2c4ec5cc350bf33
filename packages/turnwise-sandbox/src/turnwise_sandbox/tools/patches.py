"""Applies a unified diff to text files: strictly, each hunk where its lines are.

Of several places the one nearest to the hunk's line number is taken; numbers may be wrong or
missing (`@@`), as models write them: `unidiff` refuses wrong counts and overlooks hunks without
numbers, `git apply` refuses these and a last line without its end.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from turnwise.errors import ToolError

NOWHERE = "/dev/null"
FORM = "write --- a/FILE, +++ b/FILE, then @@ -LINE +LINE @@ and lines that begin with ' ', - or +"
_HUNK = re.compile(r"@@(?: -(?P<line>[0-9]+)(?:,[0-9]+)? \+[0-9]+(?:,[0-9]+)?)?(?: @@.*)?\s*")


@dataclass(frozen=True)
class Hunk:
    """Example: Hunk(3, ("a", "b"), ("a", "c")): line 3 and 4 were a and b."""

    line: int
    old: tuple[str, ...]
    new: tuple[str, ...]


def patched(files: Mapping[str, str], patch: str) -> dict[str, str | None]:
    """The new text of each file that a patch names, or None for a deleted one. Raises ToolError, in
    words for the agent, for a patch that is malformed or does not fit."""
    changed: dict[str, str | None] = {}
    for before, after, hunks in _sections(patch):
        path = after if before == NOWHERE else before
        if before == NOWHERE and path in files:
            raise ToolError(f"{path} is there already: patch it, or write it anew")
        known = changed[path] if path in changed else files.get(path)
        if before != NOWHERE and known is None:
            raise ToolError(f"there is no file {path!r}")
        lines = (known or "").split("\n")
        if before == NOWHERE:
            lines = [""]
        made = "\n".join(_applied(lines, hunks, path))
        changed[path] = None if after == NOWHERE else made
    return changed


def _sections(patch: str) -> Iterator[tuple[str, str, list[Hunk]]]:
    lines = patch.split("\n")
    while lines and not lines[-1].strip():
        lines.pop()
    place = 0
    while place < len(lines) and not lines[place].startswith("--- "):
        place += 1
    if place == len(lines):
        raise ToolError(f"this is no patch: {FORM}")
    while place < len(lines):
        if not lines[place].startswith("--- "):
            place += 1  # a line such as `diff --git` or `index`
            continue
        if place + 1 == len(lines) or not lines[place + 1].startswith("+++ "):
            raise ToolError(f"after the line --- there is no line +++: {FORM}")
        before, after = (_path(line) for line in lines[place : place + 2])
        hunks, place = _hunks(lines, place + 2)
        if not hunks:
            raise ToolError(f"there is no hunk for {after}: {FORM}")
        yield before, after, hunks


def _path(line: str) -> str:
    path = line[4:].split("\t")[0].strip()
    return path[2:] if path.startswith(("a/", "b/")) else path


def _hunks(lines: list[str], place: int) -> tuple[list[Hunk], int]:
    hunks = []
    while place < len(lines) and (head := _HUNK.fullmatch(lines[place])):
        old: list[str] = []
        new: list[str] = []
        place += 1
        while place < len(lines) and _belongs(lines, place):
            sign, text = lines[place][:1], lines[place][1:]
            if sign in ("", " ", "-"):
                old.append(text)
            if sign in ("", " ", "+"):
                new.append(text)
            place += 1
        hunks.append(Hunk(int(head["line"] or 0), tuple(old), tuple(new)))
    return hunks, place


def _belongs(lines: list[str], place: int) -> bool:
    """Whether a line is a hunk's; `--- ` before `+++ ` begins the next file."""
    line = lines[place]
    following = lines[place + 1] if place + 1 < len(lines) else ""
    if line.startswith("--- ") and following.startswith("+++ "):
        return False
    return line[:1] in ("", " ", "-", "+", "\\")


def _applied(lines: list[str], hunks: list[Hunk], path: str) -> list[str]:
    moved = 0
    for number, hunk in enumerate(hunks, start=1):
        if not hunk.old and lines == [""]:
            lines = [*hunk.new, ""]
            continue
        size, wanted = len(hunk.old), hunk.line - 1 + moved
        places = [
            start
            for start in range(len(lines) - size + 1)
            if tuple(lines[start : start + size]) == hunk.old
        ]
        if not places or not hunk.old:
            first = hunk.old[0] if hunk.old else ""
            raise ToolError(
                f"hunk {number} of {path} does not fit: its lines, from {first!r} on, are not in "
                "the file as they stand in the patch"
            )
        start = min(places, key=lambda found: abs(found - wanted))
        lines = [*lines[:start], *hunk.new, *lines[start + size :]]
        moved += len(hunk.new) - size
    return lines
