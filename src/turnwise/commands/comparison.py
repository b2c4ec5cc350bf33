"""Runs of one recipe with several algorithms and seeds, for `turnwise compare`.

All algorithms of a seed begin with the weights after the first one's cold start, so that they
differ in RL alone. Runs that are finished are not repeated, and one that was stopped goes on. Not
here: what is made of the runs (`evaluation/comparison.py`).
"""

import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from turnwise.algorithms.registry import make_algorithm
from turnwise.config import load_recipe
from turnwise.errors import ConfigError, RunStoppedError
from turnwise.evaluation.comparison import compare, markdown, plot
from turnwise.storage.checkpoint import StageName, latest, root_of
from turnwise.training.algorithm_checks import signal_tables, warnings_of

VARIANCE_EVERY = 5
"""Steps between two measurements of the gradient's variance."""


def compare_algorithms(
    recipe: str,
    overrides: Sequence[str],
    names: Sequence[str],
    seeds: Iterable[int],
    out: Path,
    target: float,
) -> list[dict[str, Any]]:
    """Train what is missing, write comparison.md and comparison.png into `out`, return the rows.

    Raises ConfigError for an unknown algorithm or recipe, before anything is trained.
    """
    names = list(dict.fromkeys(name.strip() for name in names))
    for name in names:
        make_algorithm(name, {})
    loaded = load_recipe(recipe, overrides)
    if not loaded.train.steps or not loaded.evaluation.tasks:
        raise ConfigError("a comparison needs train.steps and evaluation.tasks above 0")
    runs: dict[str, list[Path]] = {name: [] for name in names}
    for seed in seeds:
        for name in names:
            runs[name].append(_run(recipe, overrides, name, names[0], seed, out))
    rows = [
        replace(row, notes=_notes(recipe, overrides, row.algorithm))
        for row in compare(runs, target)
    ]
    (out / "comparison.md").write_text(markdown(rows, target))
    plot(runs, out / "comparison.png")
    return [asdict(row) for row in rows]


def with_algorithm(recipe: str, overrides: Sequence[str], name: str) -> list[str]:
    """The overrides, with those that choose an algorithm and leave out settings of signals that it
    does not have: a recipe may have them for another one of the compared."""
    chosen = [*overrides, f"algorithm.name={name}"]
    algorithm = make_algorithm(name, load_recipe(recipe, chosen).algorithm.overrides)
    has = signal_tables(algorithm)
    return [*chosen, *(f"algorithm.{signal}=false" for signal, there in has.items() if not there)]


def _notes(recipe: str, overrides: Sequence[str], name: str) -> list[str]:
    """List what is to be known of an algorithm in these runs."""
    loaded = load_recipe(recipe, with_algorithm(recipe, overrides, name))
    return warnings_of(loaded, make_algorithm(name, loaded.algorithm.overrides))


def _run(
    recipe: str, overrides: Sequence[str], name: str, first: str, seed: int, out: Path
) -> Path:
    """The finished run's folder."""
    measured = f"monitor.gradient_variance_every={VARIANCE_EVERY}"
    chosen = with_algorithm(recipe, [measured, *overrides, f"seed={seed}"], name)
    checkpoints = out / f"{first}-{seed}" / "checkpoints"
    cold = latest(root_of(checkpoints, StageName.COLD_START))
    if name != first and cold is not None:
        chosen += [f"model.name={cold}", "sft.steps=0"]
    return finished_run(out / f"{name}-{seed}", recipe, chosen)


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
