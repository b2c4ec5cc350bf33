"""A study from its file to its pages: checks, runs what is missing, measures, writes."""

import json
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path

from turnwise.config import EnvironmentConfig
from turnwise.environments.registry import make_environment
from turnwise.errors import ConfigError, DataError, RunStoppedError
from turnwise.monitor.display import Display
from turnwise.stopping import stoppable
from turnwise.storage.run_folder import new_file
from turnwise.storage.run_lock import locked
from turnwise_studies.config import COLD_START, Study, load_study
from turnwise_studies.folder import check_folder, is_finished, prepare_folder
from turnwise_studies.plan import PlannedRun, planned_runs
from turnwise_studies.results.curves import draw_curves, read_curves, write_curves
from turnwise_studies.results.figures import Figures, figures
from turnwise_studies.results.measures import check_metrics
from turnwise_studies.results.page import overview, page, table
from turnwise_studies.running import Machine, Runs

FIGURES = "figures.json"
INDEX = "index.md"
KEYS = {"name", "title", "effects", "seeds", "minutes", "command"}
"""Keys by which a study's figures are known among other files."""
RUNS = Path("runs")


def study_command(source: str, overrides: Sequence[str], smallest: bool) -> str:
    words = ["turnwise", "study", source, *overrides, *(["--smallest"] if smallest else [])]
    return shlex.join(words)


def run_study(
    source: str,
    overrides: Sequence[str],
    smallest: bool,
    out: Path | None,
    parallel: int | None,
    display: Display,
) -> tuple[Figures, Path]:
    """Run what is missing of a study and write its table, figures, curves and page; returns the
    figures and the folder.

    Raises ConfigError before anything is trained for what is wrong in the file, and RunStoppedError
    when a run failed, after the others are finished. Interrupted, the runs save, and the same call
    goes on.
    """
    study = load_study(source, smallest)
    runs = planned_runs(study, overrides)
    _check(study, runs)
    folder = out or RUNS / f"{study.config.name}{'-smallest' if study.smallest else ''}"
    with stoppable(), locked(folder):
        check_folder(study, folder, runs)
        prepare_folder(study, folder)
        missing = [run for run in runs if not is_finished(folder / run.name)]
        if len(missing) < len(runs):
            display.say(f"{len(runs) - len(missing)} of {len(runs)} runs are there and kept")
        if missing:
            failures = Runs(folder, Machine.here(parallel), display, missing).all()
            if failures:
                more = f"; and {len(failures) - 1} more, above" if len(failures) > 1 else ""
                raise RunStoppedError(
                    f"{len(failures)} of {len(runs)} runs failed, the others are kept: "
                    f"{failures[0]}{more}"
                )
        with new_file(folder):
            found = _write(study, study_command(source, overrides, smallest), runs, folder)
    return found, folder


def failures(found: Figures, folder: Path) -> list[str]:
    """Lines on a study of which no arm succeeded in anything: each run's first warning."""
    rates = [of[name] for of in found.arms.values() for name in found.rates]
    values = [one.value for of in rates for one in of.by_seed.values()]
    if not values or any(values):
        return []
    lines = ["nothing to compare: no arm succeeded"]
    for log in sorted((folder / "logs").glob("*.txt")):
        said = log.read_text(encoding="utf-8", errors="replace").split("\n")
        warning = next((line for line in said if line.startswith("warning:")), None)
        lines += [] if warning is None else [f"{log.stem}: {warning}"]
    return lines


def publish(found: Figures, folder: Path, target: Path) -> Path:
    """Write a study's page, plot and figures into a folder of pages, and renew the page there that
    lists all. Raises ConfigError where that is the study's own."""
    try:
        target.mkdir(parents=True, exist_ok=True)
        if target.samefile(folder):
            raise ConfigError(f"--page is the study's own folder, {folder}; give another folder")
        plot = f"{found.name}.png"
        if (folder / plot).is_file():  # a study without RL has none
            shutil.copyfile(folder / plot, target / plot)
        shutil.copyfile(folder / f"{found.name}.md", target / f"{found.name}.md")
        shutil.copyfile(folder / FIGURES, target / f"{found.name}.json")
        files = sorted(target.glob("*.json"))
        every = [json.loads(file.read_text(encoding="utf-8")) for file in files]
        all_found = [one for one in every if isinstance(one, dict) and one.keys() >= KEYS]
        (target / INDEX).write_text(overview(all_found), encoding="utf-8")
    except OSError as error:
        raise DataError(f"{target} cannot be written: {error.strerror}") from error
    except ValueError as error:
        raise DataError(f"{target} has a .json that is damaged: {error}") from None
    return target / f"{found.name}.md"


def _check(study: Study, runs: Sequence[PlannedRun]) -> None:
    """Raise ConfigError for a base that is not there, and for what figures will lack."""
    if find_spec("matplotlib") is None:
        raise ConfigError("a study needs matplotlib: pip install 'turnwise[plots]'")
    arms = {run.arm: run.recipe for run in runs if run.arm != COLD_START}
    for run in runs:
        base = Path(run.recipe.model.name)
        if base.is_absolute() and not base.is_dir():
            raise ConfigError(
                f"{study.source}: arm {run.arm!r}: model.name is {base}, and there is no such "
                "folder: train it first"
            )

    def ablations() -> set[str]:
        found: list[EnvironmentConfig] = []
        for recipe in arms.values():
            if recipe.evaluation.ablations and recipe.environment not in found:
                found.append(recipe.environment)
        made = (make_environment(chosen.name, chosen.options) for chosen in found)
        return {name for environment in made for name in environment.ablations()}

    check_metrics(study.config.metrics, list(arms.values()), ablations)


def _write(study: Study, command: str, runs: Sequence[PlannedRun], folder: Path) -> Figures:
    folders: dict[str, dict[int, Path]] = {arm: {} for arm in (*study.config.arms, COLD_START)}
    for run in runs:
        folders[run.arm][run.seed] = folder / run.name
    others = list(folders.pop(COLD_START).values())
    found = figures(study, command, folders, others)
    curves = read_curves(study.config.curves, folders)
    write_curves(curves, folder / "curves.csv")
    plot = f"{found.name}.png" if curves else ""
    if plot:
        draw_curves(curves, folder / plot)
    (folder / "table.md").write_text(table(found), encoding="utf-8")
    (folder / FIGURES).write_text(json.dumps(asdict(found), indent=1) + "\n", encoding="utf-8")
    (folder / f"{found.name}.md").write_text(page(found, plot), encoding="utf-8")
    return found
