"""Small real runs, for tests of the loop: a recipe on disk with a random model, and ways to run it.

Not here: environments (`fakes.py`), and the tables of a recipe that a test is about.
"""

import asyncio
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.fakes import save_small_model
from turnwise.config import load_recipe
from turnwise.monitor.display import Display, SilentDisplay
from turnwise.storage.run_folder import RunFolder
from turnwise.training.context import RunContext
from turnwise.training.prepare import prepare
from turnwise.training.run import run

FAKES = Path(__file__).with_name("fakes.py")
HEAD = """
name = "small"
threads = 1
[model]
name = "{model}"
[environment]
name = "{fakes}:{environment}"
[scaffold]
options = {{ instructions = "" }}
"""


class Listening(SilentDisplay):
    """Keeps what is said, and what progress says of each unit."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.progress: list[str] = []

    def advance(self, text: str = "") -> None:
        """See Display."""
        self.progress.append(text)

    def say(self, text: str) -> None:
        """See Display."""
        self.said.append(text)


def write_recipe(folder: Path, environment: str, tables: str) -> Path:
    """Write a recipe with a random model, an environment of `fakes.py` and other tables; its rate
    is a tiny model's if they name none."""
    model = save_small_model(folder / "model")
    path = folder / "recipe.toml"
    if "learning_rate" not in tables.partition("[learning]")[2].partition("\n[")[0]:
        before, _, after = tables.partition("[learning]\n")
        tables = f"{before}\n[learning]\nlearning_rate = 3e-4\n{after}"
    path.write_text(HEAD.format(model=model, fakes=FAKES, environment=environment) + tables)
    return path


def train(
    recipe: Path, folder: RunFolder, *overrides: str, display: Display | None = None
) -> RunContext:
    """Run a recipe to its end, in this process; a folder that holds a run goes on."""
    context = prepare(load_recipe(str(recipe), overrides), folder, display or SilentDisplay())
    asyncio.run(run(context))
    return context


def resume(folder: RunFolder, display: Display | None = None) -> RunContext:
    """Go on with a run to its end, by its own recipe."""
    return train(folder.path / "config.toml", folder, display=display)


def interrupted(whole: RunFolder, run: Path, *lost: str) -> RunFolder:
    """A copy of a run without some of its checkpoints, and without what comes after training: as
    a kill leaves it, without a process that is killed."""
    shutil.copytree(whole.path, run)
    for name in lost:
        shutil.rmtree(run / "checkpoints" / name)
    (run / "report.json").unlink()
    (run / "evaluations" / "trained.json").unlink()
    return RunFolder.open(run)


def figures(summary: Mapping[str, Any] | None) -> dict[str, Any]:
    """An evaluation without the times that it took, which no two have in common."""
    assert summary is not None
    return {name: value for name, value in summary.items() if name not in ("seconds", "latency")}


def start(*arguments: str | Path) -> "subprocess.Popen[str]":
    """Start turnwise in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "turnwise", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # What a shell starts in the background ignores Ctrl-C, and so would what it starts itself.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
