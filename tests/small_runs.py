"""Small real runs: a recipe on disk with a random model, and ways to run it."""

import asyncio
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.fakes import save_small_model
from turnwise.api import load_recipe
from turnwise.config import Recipe
from turnwise.monitor.display import Display, SilentDisplay
from turnwise.storage.run_folder import RunFolder
from turnwise.training.context import RunContext
from turnwise.training.prepare import prepare
from turnwise.training.run import run

FAKES = Path(__file__).with_name("fakes.py")
HEAD = """
name = "small"
threads = 1
model.name = "{model}"
environment.name = "{environment}"
scaffold.options.instructions = ""
"""


class Listening(SilentDisplay):
    """Keeps what is said, and what progress says of each unit."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.progress: list[str] = []

    def advance(self, text: str = "") -> None:
        self.progress.append(text)

    def say(self, text: str) -> None:
        self.said.append(text)


def write_recipe(folder: Path, environment: str, tables: str, model: Path | None = None) -> Path:
    """Write a recipe with a random model, an environment of `fakes.py` (or of another file, after
    which it is named) and other tables; its rate is a tiny model's if they name none."""
    model = model or save_small_model(folder / "model")
    environment = environment if ":" in environment else f"{FAKES}:{environment}"
    path = folder / "recipe.toml"
    if "learning_rate" not in tomllib.loads(tables).get("learning", {}):
        before, table, after = tables.partition("[learning]\n")
        rate = "learning_rate = 3e-4\n"
        tables = f"{before}{table}{rate}{after}" if table else f"learning.{rate}{tables}"
    path.write_text(HEAD.format(model=model, environment=environment) + tables)
    return path


def prepared(
    recipe: Path | Recipe, folder: RunFolder, *overrides: str, display: Display | None = None
) -> RunContext:
    """A run that has not begun; one that goes on, if the folder holds it."""
    return prepare(load_recipe(recipe, *overrides), folder, display or SilentDisplay())


def train(
    recipe: Path | Recipe, folder: RunFolder, *overrides: str, display: Display | None = None
) -> RunContext:
    """Run a recipe to its end, in this process; a folder that holds a run goes on."""
    context = prepared(recipe, folder, *overrides, display=display)
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


def assert_same(whole: RunFolder, other: RunFolder, last: str) -> None:
    """The same metrics, pairs, weights of the last step and evaluation."""
    for name in ("metrics.jsonl", "preferences.jsonl", f"checkpoints/{last}/model.safetensors"):
        files = [folder.path / name for folder in (whole, other)]
        assert files[0].exists() is files[1].exists()
        assert not files[0].exists() or files[0].read_bytes() == files[1].read_bytes()
    trained = [figures(folder.evaluation("trained")) for folder in (whole, other)]
    assert trained[0] == trained[1]


def figures(summary: Mapping[str, Any] | None) -> dict[str, Any]:
    """An evaluation without the times that it took, which no two have in common."""
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
