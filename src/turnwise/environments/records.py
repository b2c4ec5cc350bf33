"""A user's own data: the records of a JSON Lines file or a JSON array, each with its place."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from turnwise.errors import DataError


def read_records(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(where, record) for each object of a .jsonl or .json file, which has an array of them or a
    single one; `where` names file and line. Raises DataError for a missing file, another kind of
    file, and broken or unexpected JSON."""
    if not path.is_file():
        raise DataError(f"{path}: there is no such file or folder")
    if path.suffix not in (".jsonl", ".json"):
        raise DataError(f"{path}: give a folder, a .jsonl file or a .json file")
    for where, record in _json_lines(path) if path.suffix == ".jsonl" else _json_array(path):
        if not isinstance(record, dict):
            raise DataError(f"{where}: expected a JSON object in braces, found {record!r:.40}")
        yield where, record


def read_text(path: Path) -> str:
    """The text of a UTF-8 file. Raises DataError when it is not one."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 text, at byte {error.start}: convert it") from None


def lines_of(text: str, path: Path) -> Iterator[tuple[str, str]]:
    """The lines of a file's text that are not empty, each with file and number. They end at a line
    feed alone: JSON may have the other characters that end lines elsewhere inside its texts."""
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), start=1):
        if line.strip():
            yield f"{path}, line {number}", line


def _json_lines(path: Path) -> Iterator[tuple[str, Any]]:
    for where, line in lines_of(read_text(path), path):
        yield where, _parse(line, where, 0)


def _json_array(path: Path) -> Iterator[tuple[str, Any]]:
    text = read_text(path)
    records = _parse(text, str(path), 1)
    if isinstance(records, dict):
        records = [records]
    if not isinstance(records, list):
        raise DataError(f"{path}: expected one JSON array of objects, or one object")
    yield from ((f"{path}, entry {number}", record) for number, record in enumerate(records, 1))


def _parse(text: str, where: str, first_line: int) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        line = f", line {error.lineno}" if first_line else ""
        raise DataError(f"{where}{line}: broken JSON: {error.msg}") from None
    except RecursionError:
        raise DataError(f"{where}: this JSON is nested too deeply: is it broken?") from None
