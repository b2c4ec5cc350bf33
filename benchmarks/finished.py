"""Runs in processes of their own, for benchmarks whose runs need each other.

Not here: arms of one recipe from one cold start, which are a study (`turnwise study`).
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from turnwise.errors import RunStoppedError


def finished_run(folder: Path, recipe: str, overrides: Sequence[str]) -> Path:
    """The folder after a run of its own process: as it is if it is finished, gone on with if it was
    stopped, else begun. Raises RunStoppedError when the run fails."""
    if (folder / "report.json").is_file():
        return folder
    begun = (folder / "config.toml").is_file()
    arguments = ["--resume", str(folder)] if begun else [recipe, *overrides, "--run", str(folder)]
    command = [sys.executable, "-m", "turnwise", "train", *arguments]
    ended = subprocess.run(command, check=False, stdout=subprocess.DEVNULL)
    if ended.returncode:
        raise RunStoppedError(f"{folder} ended with code {ended.returncode}; it is kept, see above")
    return folder
