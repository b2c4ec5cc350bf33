"""Notes of one's own on episodes, kept beside a run and never in it: RUN.notes.jsonl.

A note is replaced by a later one on the same episode, and taken away by an empty one.
"""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from turnwise.errors import DataError

LONGEST = 10_000
"""Characters of a note, at most."""


def notes_file(run: Path) -> Path:
    """The file of a run's notes. Raises DataError for a link: it would be written to elsewhere."""
    whole = run.resolve()
    file = whole.with_name(whole.name + ".notes.jsonl")
    if file.is_symlink():
        raise DataError(f"{file} is a link: put a file in its place")
    return file


def read_notes(run: Path) -> list[dict[str, Any]]:
    """The present notes on a run's episodes, oldest first. Raises DataError for a damaged file."""
    file = notes_file(run)
    try:
        lines = file.read_text(encoding="utf-8").split("\n")
        written = [json.loads(line) for line in lines if line.strip()]
        present = {(str(note["file"]), int(note["row"])): note for note in written}
        return [note for note in present.values() if note["text"]]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise DataError(f"{file} cannot be read: {error}") from None


def write_note(run: Path, file: str, row: int, text: str) -> None:
    """Add a note. Raises DataError where it is too long, or cannot be written."""
    if len(text) > LONGEST:
        raise DataError(f"the note has {len(text)} characters: {LONGEST} are the most")
    written = datetime.now(UTC).isoformat(timespec="seconds")
    note = {"file": file, "row": row, "text": text, "written": written}
    try:
        with notes_file(run).open("a", encoding="utf-8") as notes:
            notes.write(json.dumps(note) + "\n")
    except OSError as error:
        raise DataError(
            f"{notes_file(run)} cannot be written: {error.strerror}; notes are kept beside the run"
        ) from None
