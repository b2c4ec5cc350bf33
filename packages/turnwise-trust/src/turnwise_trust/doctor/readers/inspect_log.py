"""Evaluation logs of Inspect, version 2 of its format: `.eval`, a zip with a file for each sample,
compressed by zstandard, and `.json`, which has all of them in one object.

A sample has id, epoch, scores (a value each: C, I, P, N, a number or a truth value), error, limit,
messages and output with its stop reason. An epoch is an episode, and there are no training steps.
"""

import json
import struct
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO
from zipfile import BadZipFile, ZipFile, ZipInfo

import pyarrow as pa

from turnwise_trust.doctor.log import Event, Remark, Rollout
from turnwise_trust.doctor.readers.lines import Row, document, mapping, number, rows, said

WORDS = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}
"""Inspect's letters for correct, incorrect, partly correct and no answer."""
ZSTANDARD = 93
"""The method's number in zip files."""
DAMAGED = (
    *(OSError, ValueError, EOFError, NotImplementedError, BadZipFile),
    *(struct.error, zlib.error),
)


def read_log(file: Path) -> Iterator[Event]:
    """The samples of a log."""
    for row in (
        _zipped(file) if file.suffix == ".eval" else rows(mapping(document(file)).get("samples"))
    ):
        if isinstance(row, Remark):
            yield row
        elif isinstance(row, Mapping):
            yield _rollout(row)


def _zipped(file: Path) -> Iterator[Any]:
    try:
        with ZipFile(file) as archive, file.open("rb") as opened:
            for entry in archive.infolist():
                if entry.filename.startswith("samples/"):
                    yield json.loads(_content(archive, entry, opened))
    except DAMAGED as problem:
        yield Remark(f"{file.name} is cut off or damaged, the rest was left out: {problem}")


def _content(archive: ZipFile, entry: ZipInfo, opened: BinaryIO) -> bytes:
    """The content of an entry; zipfile reads zstandard from Python 3.14 on."""
    if entry.compress_type != ZSTANDARD:
        return archive.read(entry)
    opened.seek(entry.header_offset)
    name, extra = struct.unpack("<26x2H", opened.read(30))
    opened.seek(name + extra, 1)
    packed = pa.BufferReader(opened.read(entry.compress_size))
    content: bytes = pa.CompressedInputStream(packed, "zstd").read()
    return content


def _rollout(row: Row) -> Event:
    scores = {
        str(name): value
        for name, one in mapping(row.get("scores")).items()
        if isinstance(one, Mapping) and (value := _score(one.get("value"))) is not None
    }
    reward = None if row.get("error") or not scores else next(iter(scores.values()))
    messages = rows(row.get("messages"))
    turns = [one for one in messages if one.get("role") == "assistant"]
    results = [one for one in messages if one.get("role") == "tool"]
    return Rollout(
        group=str(row.get("id")),
        reward=reward,
        parts=scores if len(scores) > 1 else {},
        text="\n".join(said(one.get("content")) for one in turns),
        truncated=bool(row.get("limit")) or _cut(row),
        tool_calls=sum(len(rows(one.get("tool_calls"))) for one in turns),
        tool_errors=sum(bool(one.get("error")) for one in results),
    )


def _score(value: Any) -> float | None:
    if isinstance(value, bool):
        return float(value)
    return WORDS.get(value) if isinstance(value, str) else number(value)


def _cut(row: Row) -> bool:
    choices = rows(mapping(row.get("output")).get("choices"))
    return any(one.get("stop_reason") in ("max_tokens", "model_length") for one in choices)
