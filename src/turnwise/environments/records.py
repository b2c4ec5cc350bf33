"""A user's own data: the records of a JSON Lines file, a JSON array or a Parquet file."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from turnwise.errors import DataError
from turnwise.types import encodable

SHOWN = 5
"""Most broken records of a file that have a sentence each."""

T = TypeVar("T")
Row = tuple[str, Any]
"""The place of a record, which names file and line, and its content, or why it has none."""


def read_each(path: Path, read: Callable[[Mapping[str, Any], str], T]) -> tuple[list[T], list[str]]:
    """Read each record, with its place: the results in the order of the file, and sentences on the
    records that are broken, for which `read` raises DataError. Raises it for a missing file,
    another kind of file, and one whose records are all broken."""
    if not path.is_file():
        raise DataError(f"{path}: there is no such file or folder")
    if path.suffix not in _READERS:
        raise DataError(f"{path}: give a folder, or a file that is one of {', '.join(_READERS)}")
    found, broken = list[T](), list[str]()
    for where, value in _READERS[path.suffix](path):
        try:
            found.append(read(_record(value, where), where))
        except DataError as error:
            broken.append(str(error))
    return found, left_out(path, broken, bool(found))


def left_out(path: Path, broken: Sequence[str], others: bool) -> list[str]:
    """Sentences on broken records. Raises DataError where there are no others."""
    if broken and not others:
        raise DataError(broken[0])
    rest = len(broken) - SHOWN
    more = [f"{path}: {rest} more records are broken: left out"] if rest > 0 else []
    return [*(f"{one}: left out" for one in broken[:SHOWN]), *more]


def _record(value: Any, where: str) -> Mapping[str, Any]:
    """A record; of verl's, with the fields of its `extra_info`, and else the last message as the
    question and the ground truth as the answer."""
    if isinstance(value, DataError):
        raise value
    if not isinstance(value, dict):
        raise DataError(f"{where}: expected a JSON object in braces, found {value!r:.40}")
    try:
        truth, question = value["reward_model"]["ground_truth"], value["prompt"][-1]["content"]
        extra = dict(value.get("extra_info") or {})
    except (LookupError, TypeError, ValueError):
        return value
    answer = truth.get("target") if isinstance(truth, dict) else truth  # Search-R1 has a table
    fields = ({"question": question, "answer": answer}, extra, value)
    return {name: one for each in fields for name, one in each.items() if one is not None}


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


def _json_lines(path: Path) -> Iterator[Row]:
    # What is no UTF-8 is kept, so that it voids its own line alone.
    text = path.read_text(encoding="utf-8-sig", errors="surrogateescape")
    for where, line in lines_of(text, path):
        try:
            line.encode()
            yield where, _parse(line, where, 0)
        except UnicodeEncodeError as error:
            at = f"at character {error.start + 1}"
            yield where, DataError(f"{where}: not UTF-8 text, {at}: convert it")
        except DataError as error:
            yield where, error


def _parquet_rows(path: Path) -> Iterator[Row]:
    try:
        with pq.ParquetFile(path) as file:
            rows = (row for batch in file.iter_batches(1024) for row in batch.to_pylist())
            yield from ((f"{path}, row {number}", row) for number, row in enumerate(rows))
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}: not a Parquet file: {error}") from None


def _json_array(path: Path) -> Iterator[Row]:
    text = read_text(path)
    try:
        records = _parse(text, str(path), 1)
    except DataError:
        if not text.lstrip().startswith("{"):
            raise
        yield from _json_lines(path)  # BFCL and others call JSON Lines .json
        return
    records = [records] if isinstance(records, dict) else records
    if not isinstance(records, list):
        raise DataError(f"{path}: expected one JSON array of objects, or one object")
    yield from ((f"{path}, entry {number}", record) for number, record in enumerate(records, 1))


def _parse(text: str, where: str, first_line: int) -> Any:
    try:
        found = json.loads(text)
        halves = "\\ud" in text.lower()  # of a pair of escapes: a question mark, as everywhere
        return json.loads(encodable(json.dumps(found, ensure_ascii=False))) if halves else found
    except json.JSONDecodeError as error:
        line = f", line {error.lineno}" if first_line else ""
        raise DataError(f"{where}{line}: broken JSON: {error.msg}") from None
    except RecursionError:
        raise DataError(f"{where}: this JSON is nested too deeply: is it broken?") from None
    except ValueError as error:  # a number with more digits than Python reads
        raise DataError(f"{where}: {error}") from None


_READERS: Mapping[str, Callable[[Path], Iterator[Row]]] = {
    ".jsonl": _json_lines,
    ".json": _json_array,
    ".parquet": _parquet_rows,
}
