"""A cache of records on disk, for what takes seconds to compute and is the same every time.

A file that cannot be written is done without; one that is damaged is rebuilt.
"""

import hashlib
import json
import sys
import sysconfig
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from turnwise.environments.records import lines_of
from turnwise.folders import cache_folder, write_whole

Record = dict[str, Any]


def cached(
    name: str, sources: Sequence[Path], build: Callable[[], Sequence[Record]]
) -> list[Record]:
    """The records that `build` makes, from disk where they were made before. They are made anew
    when Python's version or installation, or the text of a file in `sources` (those that hold the
    builder), is another one."""
    path = cache_folder() / f"{name}-{_key(sources)}.jsonl"
    records = _read(path)
    if records is None:
        lines = [json.dumps(record) for record in build()]
        with suppress(OSError):  # a read-only home: slower, not broken
            header = json.dumps({"records": len(lines)})
            write_whole(path, "".join(f"{line}\n" for line in (header, *lines)).encode())
        records = [json.loads(line) for line in lines]
    return records


def _key(sources: Sequence[Path]) -> str:
    digest = hashlib.sha256()
    for part in (sys.version, sys.platform, sysconfig.get_path("stdlib")):
        digest.update(part.encode())
    for source in sorted(sources):
        digest.update(source.read_bytes())
    version = ".".join(str(part) for part in sys.version_info[:3])
    return f"{version}-{digest.hexdigest()[:16]}"


def _read(path: Path) -> list[Record] | None:
    """The cached records; None when there is no such file, or `cached` did not write it."""
    try:
        lines = lines_of(path.read_text(encoding="utf-8"), path)
        header, *records = [json.loads(line) for _, line in lines]
    except (OSError, ValueError, RecursionError):
        return None
    return records if header == {"records": len(records)} else None
