"""A user's own data: the records of a JSON Lines file, a JSON array or a Parquet file."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from turnwise.errors import DataError
from turnwise.types import encodable

SHOWN = 5
"""Most broken records of a file that have a sentence each."""

_MARKS = re.compile(r'"[^"\\\n]*(?:\\.[^"\\\n]*)*"|["\[\]{},]')
"""The marks that tell an array's entries apart: texts, each within its line, brackets, commas."""
T = TypeVar("T")
Row = tuple[str, Any]
"""The place of a record, which names file and line, and its content, or why it has none."""


def read_each(path: Path, read: Callable[[Mapping[str, Any], str], T]) -> tuple[list[T], list[str]]:
    """Read each record, with its place: the results in the order of the file, and sentences on the
    records that are broken, for which `read` raises DataError. Raises it for a missing file,
    another kind of file, and one whose records are all broken."""
    if not path.exists():
        raise DataError(f"{path}: there is no such file or folder")
    if path.suffix not in _READERS or not path.is_file():
        raise DataError(f"{path}: give a file that is one of {', '.join(_READERS)}")
    found, broken = list[T](), list[str]()
    for where, value in _READERS[path.suffix](path):
        try:
            found.append(read(_record(value, where), where))
        except DataError as error:
            broken.append(f"{error!s:.500}")
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
    """The text of a UTF-8 file. Raises DataError when it is not one, or cannot be read."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 text, at byte {error.start}: convert it") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from None


def lines_of(text: str, path: Path) -> Iterator[tuple[str, str]]:
    """The lines of a file's text that are not empty, each with file and number. They end at a line
    feed alone: JSON may have the other characters that end lines elsewhere inside its texts."""
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), start=1):
        if line.strip():
            yield f"{path}, line {number}", line


def _json_rows(path: Path) -> Iterator[Row]:
    # What is no UTF-8 voids its own record alone. BFCL and others call JSON Lines .json.
    text = path.read_text(encoding="utf-8-sig", errors="surrogateescape")
    with suppress(DataError):
        whole = parsed(text, str(path))
        rows, kind = (whole, "entry") if isinstance(whole, list) else ([whole], "line")
        yield from ((f"{path}, {kind} {number}", row) for number, row in enumerate(rows, 1))
        return
    if text.lstrip().startswith("[") and (path.suffix == ".json" or text.rstrip().endswith("]")):
        pieces = _entries(text, path)
    else:
        pieces = ((where, line, 0) for where, line in lines_of(text, path))
    for where, piece, first_line in pieces:
        try:
            yield where, parsed(piece, where, first_line)
        except DataError as error:
            yield where, error


def _entries(text: str, path: Path) -> Iterator[tuple[str, str, int]]:
    """The texts of an array's entries, whatever is wrong in one, each with its place and first
    line. Raises DataError where a bracket, or a quote in a line of several, leaves them open."""
    begin, depth, found = text.index("[") + 1, 1, list[str]()
    for mark in _MARKS.finditer(text, begin):
        depth += (mark[0] in "[{") - (mark[0] in "]}")
        if depth == 0 or (depth == 1 and mark[0] == ","):
            found.append(text[begin : mark.start()])
            begin = mark.end()
        alone = not found or text[begin : begin + 99].lstrip(" ").startswith("\n")
        if depth == 0 or (mark[0] == '"' and not alone):
            break
    if depth or text[begin:].strip():
        parsed(text, f"{path}, entry {len(found) + (depth > 0)}", 1)
    line = 1 + text[: text.index("[")].count("\n")
    for number, entry in enumerate(found, 1):
        if entry.strip():
            yield f"{path}, entry {number}", entry, line
        line += entry.count("\n")


def _parquet_rows(path: Path) -> Iterator[Row]:
    try:
        with pq.ParquetFile(path) as file:
            batches, names = file.iter_batches(1024), file.schema_arrow.names
            rows = (cells for batch in batches for cells in zip(*batch.columns, strict=True))
            for number, cells in enumerate(rows):
                yield f"{path}, row {number}", dict(zip(names, map(_cell, cells), strict=True))
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}: not a Parquet file: {error}") from None


def _cell(cell: Any) -> Any:
    """The value of a cell; None where Python has none, as of nanoseconds and what is no UTF-8."""
    try:
        return cell.as_py()
    except (ValueError, OverflowError, LookupError):
        return None


def parsed(text: str, where: str, first_line: int = 0) -> Any:
    """The value of a JSON text. Raises DataError, which names the line where the first is known."""
    try:
        text.encode()
        found = json.loads(text)
        halves = "\\ud" in text.lower()  # of a pair of escapes: a question mark, as everywhere
        return json.loads(encodable(json.dumps(found, ensure_ascii=False))) if halves else found
    except json.JSONDecodeError as error:
        line = f", line {first_line + error.lineno - 1}" if first_line else ""
        raise DataError(f"{where}{line}: broken JSON: {error.msg}") from None
    except RecursionError:
        raise DataError(f"{where}: this JSON is nested too deeply: is it broken?") from None
    except UnicodeEncodeError as error:
        at = f"at character {error.start + 1}"
        raise DataError(f"{where}: not UTF-8 text, {at}: convert it") from None
    except ValueError:
        raise DataError(f"{where}: a number has more digits than Python reads") from None


_READERS = {".jsonl": _json_rows, ".json": _json_rows, ".parquet": _parquet_rows}
