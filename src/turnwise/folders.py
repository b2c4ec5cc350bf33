"""The places of turnwise's files that belong to no run, and how files are written whole."""

import os
import tempfile
from pathlib import Path


def cache_folder() -> Path:
    """The folder of everything that can be made again: `$TURNWISE_CACHE`,
    `$XDG_CACHE_HOME/turnwise` or `~/.cache/turnwise`. It need not exist, and can be deleted."""
    if own := os.environ.get("TURNWISE_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "turnwise"


def write_whole(path: Path, content: bytes) -> None:
    """Write a file that may be read meanwhile: all of it, or, where OSError is raised, nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(draft, path)
    finally:
        Path(draft).unlink(missing_ok=True)
