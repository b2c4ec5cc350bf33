"""A study's folder: its file as it was begun, and the runs that an earlier call has left.

study.toml           the study's file, as of the last call
recipes/*.toml       the whole recipe of each run
logs/*.txt           what each run has printed
ARM-SEED/            the run folders, and cold_start-SEED/
table.md, figures.json, curves.csv, NAME.png, NAME.md   what was found, when all runs are there
"""

import os
import shutil
import tomllib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from turnwise.config import flattened
from turnwise.errors import ConfigError, DataError
from turnwise.storage.checkpoint import latest, root_of, stages_of_a_run
from turnwise.storage.run_folder import RunFolder, mapped, new_file, with_whole_paths
from turnwise.storage.run_lock import LOCK
from turnwise_studies.config import Study
from turnwise_studies.plan import PlannedRun

COPY = "study.toml"
DATE, TYPE = "scaffold.options.date", "learning.compute_dtype"


def is_begun(folder: Path) -> bool:
    return (folder / "config.toml").is_file()


def is_finished(folder: Path) -> bool:
    return is_begun(folder) and (folder / "report.json").is_file()


def check_folder(study: Study, out: Path, runs: Sequence[PlannedRun]) -> None:
    """Raise ConfigError where the folder is another study's, or has runs with other settings."""
    begun = _begun_as(out / COPY) if (out / COPY).is_file() else study.config.name
    if begun != study.config.name:
        raise ConfigError(
            f"{out} was begun as the study {begun!r}: choose another folder with --out"
        )
    begun_runs = [run for run in runs if is_begun(out / run.name)]
    beside = study.file.resolve().parent
    found = {
        run.name: differences(run, RunFolder.open(out / run.name), beside) for run in begun_runs
    }
    for run in begun_runs:
        found[run.name] += [f"needs {name}" for name in run.needed if found.get(name)]
    differing = [f"{name} ({', '.join(said)})" for name, said in found.items() if said]
    if differing:
        kept = len(found) - len(differing)
        raise ConfigError(
            f"{out} has runs that were begun with other settings, {kept} others can be kept: "
            f"{'; '.join(differing)}. Delete the folders of these runs to train them again, or "
            "choose another folder with --out"
        )


def differences(run: PlannedRun, folder: RunFolder, beside: Path) -> list[str]:
    """Settings of a run's folder that are not the plan's, as in "train.steps 20, now 30". Weights
    of other runs, and files `beside` the study's, are its own wherever it lies."""
    begun, now = (
        flattened(mapped(recipe.model_dump(mode="json"), partial(_moved, beside=beside)))
        for recipe in (folder.recipe(), with_whole_paths(run.recipe))
    )
    weights = {key: run.models.get(str(value)) for key, value in now.items()}
    weights["model.name"] = run.after or weights["model.name"]
    for key, name in weights.items():
        if name is not None and name in Path(str(begun.get(key))).parts:
            begun[key] = now[key]
    if DATE not in now:  # it was fixed when the run began
        begun.pop(DATE, None)
    if now[TYPE] == "auto":  # so was the machine's choice
        begun[TYPE] = "auto"
    keys = (key for key in {**begun, **now} if begun.get(key) != now.get(key))
    return [f"{key} {begun.get(key)!r}, now {now.get(key)!r}" for key in keys]


def prepare_folder(study: Study, out: Path) -> None:
    """Make the folder, and copy the study's file into it. Raises DataError where the disk
    refuses."""
    with new_file(out):
        (out / "recipes").mkdir(parents=True, exist_ok=True)
        (out / "logs").mkdir(exist_ok=True)
        shutil.copyfile(study.file, out / COPY)


def clear(folder: Path) -> None:
    """Delete what is left of a run that was ended before it began: empty folders, a lock, a file
    that was half-written. Anything else stays, and is refused by the run."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    if folder.is_dir() and all(path.name == LOCK or path.suffix == ".partial" for path in files):
        shutil.rmtree(folder)


def weights_at_end(out: Path, name: str) -> Path:
    """The newest weights of a run: those of its last stage."""
    checkpoints = out / name / "checkpoints"
    found = (latest(root_of(checkpoints, stage)) for stage in stages_of_a_run())
    weights = next((one for one in found if one is not None), None)
    if weights is None:
        raise DataError(f"{checkpoints} has no checkpoint: delete {out / name} to train it again")
    return weights


def _begun_as(copy: Path) -> Any:
    try:
        return tomllib.loads(copy.read_text(encoding="utf-8")).get("name")
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{copy} is damaged: {error}; delete it") from None


def _moved(text: str, beside: Path) -> str:
    """A path to a file that has moved with the study, to where it lies now: beside the study's with
    the same name, and the same content unless the old one is gone. Any other text as it is."""
    path, name = text.rsplit(":", 1) if ".py:" in text else (text, "")
    now = beside / Path(path).name
    if not (Path(path).is_absolute() and os.path.isfile(now)):
        return text
    if os.path.isfile(path) and Path(path).read_bytes() != now.read_bytes():
        return text
    return f"{now}:{name}" if name else str(now)
