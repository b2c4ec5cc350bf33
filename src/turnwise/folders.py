"""The places of turnwise's files that belong to no run."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """The folder of everything that can be made again: `$TURNWISE_CACHE`,
    `$XDG_CACHE_HOME/turnwise` or `~/.cache/turnwise`. It need not exist, and can be deleted."""
    if own := os.environ.get("TURNWISE_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "turnwise"
