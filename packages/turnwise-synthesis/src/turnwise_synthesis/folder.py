"""The folder of a synthesis: `items.jsonl`, `refused.jsonl`, and the settings that both follow.

Each attempt is one line of one of the two, written at once, so that a synthesis that was stopped at
any moment goes on with the next attempt.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from turnwise.errors import DataError
from turnwise.storage.run_folder import new_file

ITEMS, REFUSED, SETTINGS = "items.jsonl", "refused.jsonl", "synthesis.json"
Line = dict[str, Any]


class Folder:
    """Example: Folder(Path("synthesised/webshaper"), {"method": "webshaper"})."""

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        """Begin, or go on in a folder with the same settings. Raises DataError for one with others,
        and for a broken line that is not the last."""
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        self._check(settings)
        self.items, self.refused = (list(_read(path / name)) for name in (ITEMS, REFUSED))
        self.next_attempt = 1 + max(
            (line["attempt"] for line in (*self.items, *self.refused)), default=-1
        )

    def keep(self, attempt: int, key: str, data: Mapping[str, Any]) -> None:
        """Write an item."""
        self._write(ITEMS, self.items, {"attempt": attempt, "key": key, **data})

    def refuse(self, attempt: int, reason: str) -> None:
        """Write why an attempt is no item."""
        self._write(REFUSED, self.refused, {"attempt": attempt, "reason": reason})

    def _write(self, name: str, lines: list[Line], line: Line) -> None:
        _append(self.path / name, json.dumps(line, ensure_ascii=False) + "\n")
        lines.append(line)
        self.next_attempt = line["attempt"] + 1

    def _check(self, settings: Mapping[str, Any]) -> None:
        file, text = self.path / SETTINGS, json.dumps(settings, indent=2, sort_keys=True)
        if not file.exists():
            _append(file, text)
        elif file.read_text() != text:
            raise DataError(
                f"{self.path} holds items of other settings, which {SETTINGS} says: choose another "
                "folder with --out"
            )


def _append(file: Path, text: str) -> None:
    with new_file(file), file.open("a", encoding="utf-8") as opened:
        opened.write(text)


def _read(file: Path) -> Iterator[Line]:
    """The lines of a file; a last one that was cut off is removed from it."""
    content = file.read_bytes() if file.exists() else b""
    whole = content[: content.rfind(b"\n") + 1]
    if len(whole) < len(content):
        with file.open("r+b") as torn:
            torn.truncate(len(whole))
    for number, line in enumerate(whole.splitlines(), start=1):
        try:
            found: Line = json.loads(line)
        except ValueError as error:
            raise DataError(f"{file}, line {number}: broken JSON: {error}") from None
        yield found
