"""The runs that the dashboard shows: what state each is in, its figures, its recipe.

Everything is read from files again at each call, so that a run that goes on is shown as it is. What
cannot be read is a state of its own with its reason, and never an error for the other runs.
"""

import json
import os
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from turnwise.config import check_recipe, flattened
from turnwise.errors import ConfigError, DataError
from turnwise.storage.moves import move_sentences
from turnwise.storage.run_folder import KEPT, RunFolder
from turnwise.storage.run_lock import LOCK, Owner, is_locked
from turnwise.types import encodable

CONFIG = "config.toml"
STUDY = "figures.json"
UNREAD = ("checkpoints", "vllm", "trackers", "learners")
"""Parts of a run's folder of which nothing is shown."""
State = tuple[int, int]
"""When a file was changed, in nanoseconds, and its bytes."""
COUNTED = 100
"""Steps whose episodes are counted for a run's page: the newest."""
SUMMED = ("rollout/tokens_sampled", "seconds/step", "seconds/rollout", "seconds/update")
DEEPEST = 3
"""Levels of folders below a given one in which runs are looked for."""


def find_runs(paths: Sequence[Path]) -> dict[str, Path]:
    """The runs in some folders by their ids: numbers for folders that were given, names for runs
    found inside one. Raises DataError, naming the folder, where there is none."""
    found: dict[str, Path] = {}
    for path in paths:
        if not (os.path.isdir(path) and os.access(path, os.R_OK | os.X_OK)):
            raise DataError(f"{path}: there is no such folder that you may read")
        inside = [path] if os.path.isfile(path / CONFIG) else sorted(_inside(path, DEEPEST))
        if not inside:
            raise DataError(
                f"{path} is no run folder and holds none: give the folder that `turnwise train` "
                f"wrote, with a {CONFIG} in it; of another framework's log `turnwise doctor {path} "
                "--folder NEW` makes one"
            )
        for run in inside:
            name = str(len(found)) if run == path else run.relative_to(path).as_posix()
            others = (f"{path.name}/{name}", *(f"{name}-{number}" for number in range(len(found))))
            # They stand in addresses, which cannot have a name's bytes that are no text.
            free = (one for one in map(encodable, (name, *others)) if one not in found)
            found[next(free)] = run
    return found


def _inside(folder: Path, levels: int) -> Iterator[Path]:
    # `os.path` says no, where `Path` raises, of what may not be looked into.
    with suppress(PermissionError):
        for child in folder.iterdir():
            if os.path.isfile(child / CONFIG):
                yield child
            elif levels > 1 and os.path.isdir(child) and not child.name.startswith("."):
                yield from _inside(child, levels - 1)


def check_links(path: Path) -> None:
    """Raise DataError where a link in a run's folder leads out of it: a folder that came from
    elsewhere shows nothing of this machine's."""
    for folder, names, files in os.walk(path):
        if Path(folder) == path:
            names[:] = [name for name in names if name not in UNREAD]
        for name in (*names, *files):
            one = os.path.join(folder, name)
            if os.path.islink(one) and leads_out(one, path):
                raise DataError(
                    f"{one} is a link that leads out of the run's folder: put the file itself there"
                )


def leads_out(file: str | Path, folder: Path) -> bool:
    """Whether a file is, by its links, anywhere but in that folder."""
    return not Path(os.path.realpath(file)).is_relative_to(os.path.realpath(folder))


def overview(identity: str, path: Path) -> dict[str, Any]:
    """A run in a list of runs; one that cannot be read has the state "unreadable" and says why."""
    shown: dict[str, Any] = {"id": identity, "name": path.name, "path": str(path), "kind": "run"}
    nothing = dict.fromkeys(("steps_planned", "started", "seconds", "cost")) | {"steps_done": 0}
    nothing["figures"] = []
    try:
        folder = RunFolder.open(path)
        check_links(path)
        values = recipe_values(path)
        metrics, timing = (_log(path / name) for name in ("metrics.jsonl", "timing.jsonl"))
        kept = any(folder.evaluation(name) is not None for name in KEPT)
        shown["kind"] = "evaluation" if kept else "run"
        planned = None if kept else flattened(values).get("train.steps")
        state = _state(folder, metrics.lines > 0 or kept)
        return shown | {
            "name": str(values.get("name", path.name)),
            "state": state,
            "trouble": _trouble(folder, state, metrics.lines),
            "steps_done": metrics.step,
            "steps_planned": planned,
            "started": _time((path / CONFIG).stat().st_mtime),
            "seconds": _seconds(folder, timing),
            "figures": figures(folder),
            "cost": _cost(metrics, timing),
        }
    except (DataError, OSError) as error:
        return shown | nothing | {"state": "unreadable", "trouble": str(error)}


def details(identity: str, path: Path) -> dict[str, Any]:
    """A run by itself: its overview, its recipe, its files and what went wrong at which step."""
    shown = overview(identity, path)
    if shown["state"] == "unreadable":
        lists: dict[str, Any] = {name: [] for name in ("changed", "files", "troubles", "moves")}
        return shown | lists | {"recipe": {}, "has": {}}
    folder, values = RunFolder.open(path), recipe_values(path)
    flat, files = flattened(values), in_order(folder.trajectory_files())
    steps = [file for file in files if file_kind(file.stem)[0] == "step"]
    earlier = set(steps[COUNTED:])
    return shown | {
        "recipe": flat,
        "changed": changed_keys(values),
        "files": [file_entry(file, file in earlier) for file in reversed(files)],
        "troubles": [
            {"step": line["step"], "sentence": line.get("reason", "")}
            for line in folder.lines("no_signal.jsonl")
        ],
        "moves": move_sentences(folder),
        "has": {name: (path / f"{name}.jsonl").is_file() for name in ("metrics", "timing")},
    }


def compared(runs: Mapping[str, Path]) -> dict[str, Any]:
    """Runs side by side: their figures, and the settings in which they differ."""
    shown = [overview(identity, path) for identity, path in runs.items()]
    recipes = [
        {} if one["state"] == "unreadable" else flattened(recipe_values(path))
        for one, path in zip(shown, runs.values(), strict=True)
    ]
    keys = sorted({key for recipe in recipes for key in recipe})
    rows = [{"key": key, "values": [recipe.get(key) for recipe in recipes]} for key in keys]
    return {
        "runs": [
            {key: one[key] for key in ("id", "name", "path", "state", "figures")} for one in shown
        ],
        "recipe": [row for row in rows if any(one != row["values"][0] for one in row["values"])],
    }


def figures(folder: RunFolder) -> list[dict[str, Any]]:
    """The success of every finished evaluation with its 95% interval."""
    keys = ("low", "high", "n")
    return [
        {"name": name, "rate": one.get("success"), **{key: one.get(key) for key in keys}}
        for name, one in folder.evaluations().items()
    ]


def recipe_values(path: Path) -> dict[str, Any]:
    """The tables of a run's recipe as they are written, be it of an older turnwise or not. Raises
    DataError for a damaged file."""
    try:
        return tomllib.loads((path / CONFIG).read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise DataError(f"{path / CONFIG} is damaged: {error}") from None


def environments(shown: Mapping[str, Path]) -> list[str]:
    """The names of the environments of some runs, those that cannot be read aside."""
    found = set()
    for path in shown.values():
        with suppress(DataError):
            check_links(path)
            found.add(str(flattened(recipe_values(path)).get("environment.name", "")))
    return sorted(found)


def changed_keys(values: Mapping[str, Any]) -> list[str]:
    """The dotted keys of a recipe whose values are not the defaults."""
    least = {"name": values.get("name", ""), "environment": values.get("environment", {})}
    try:
        defaults = check_recipe(least, "defaults").model_dump(mode="json", exclude_none=True)
    except ConfigError:  # the environment's table of an older turnwise
        return []
    usual = flattened(defaults)
    return [
        key
        for key, value in flattened(values).items()
        if key.startswith("environment.") or usual.get(key) != value
    ]


def file_entry(file: Path, earlier: bool = False) -> dict[str, Any]:
    """A file of trajectories in a list; without its rows where it cannot be read, and of an earlier
    one its name alone."""
    kind, step = file_kind(file.stem)
    known: dict[str, Any] = {"name": file.stem, "kind": kind, "step": step, "earlier": earlier}
    if earlier:
        return known
    try:
        return known | {"rows": row_count(file), "bytes": state_of(file)[1]}
    except DataError:
        return known | {"rows": None, "bytes": None}


def in_order(files: list[Path]) -> list[Path]:
    """Files of trajectories, the newest step first, then evaluations and others."""

    def place(file: Path) -> tuple[int, int, str]:
        kind, step = file_kind(file.stem)
        return {"step": 0, "evaluation": 1, "other": 2}[kind], -(step or 0), file.stem

    return sorted(files, key=place)


def row_count(file: Path) -> int:
    """The number of a file's trajectories, of which nothing else is read. Raises DataError for a
    file that cannot be read."""
    return _counted(file, state_of(file))


@lru_cache(maxsize=100_000)
def _counted(file: Path, state: State) -> int:
    del state  # a file that has changed is counted again
    try:
        return int(pq.read_metadata(file).num_rows)
    except (pa.ArrowException, OSError) as error:
        raise DataError(cannot_read(file, error)) from error


def state_of(file: Path) -> State:
    """The time and the size by which a file is known to have changed. Raises DataError for one
    that is gone."""
    try:
        status = file.stat()
    except OSError as error:
        raise DataError(cannot_read(file, error)) from None
    return status.st_mtime_ns, status.st_size


def cannot_read(file: Path, error: Exception) -> str:
    """A line on a file of trajectories that is damaged or gone."""
    line = str(error).partition("\n")[0]
    return f"{file} cannot be read, it may be cut off or gone: {line}"


def file_kind(name: str) -> tuple[str, int | None]:
    """Whether a file of trajectories is of a "step" of RL (and of which), of an "evaluation", or
    "other"."""
    word, _, number = name.partition("-")
    if word == "step" and number.isdecimal():
        return "step", int(number)
    return ("evaluation" if word == "evaluation" else "other"), None


def _state(folder: RunFolder, begun: bool) -> str:
    if is_locked(folder.path):
        return "running"
    if (folder.path / "report.json").is_file():
        return "finished"
    there = begun or any(folder.trajectory_files()) or folder.lines("cold_start.jsonl")
    return "stopped" if there else "empty"


def _trouble(folder: RunFolder, state: str, steps: int) -> str | None:
    """The last that a reader should know, in a sentence; None where all is well."""
    lines = folder.lines("no_signal.jsonl")
    if lines and state != "finished" and lines[-1]["step"] >= steps - 2:
        return f"step {lines[-1]['step']}: {lines[-1].get('reason', 'nothing was learned')}"
    if state == "stopped":
        owner = _owner(folder.path / LOCK)
        if owner:
            return f"it may still be written on {owner}, which cannot be seen from here"
        return f"it ended before its end: turnwise train --resume {folder.path}"
    if lines:
        last = lines[-1]["step"]
        return f"{len(lines)} of {steps} steps taught nothing, the last one step {last}"
    return None


def _owner(lock: Path) -> str:
    """The other machine that a left lock names; empty where it names none."""
    try:
        owner = Owner(**json.loads(lock.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return ""
    return "" if owner.here else owner.host


class Log(NamedTuple):
    """All that a list of runs shows of a log."""

    lines: int
    step: int
    """The last one; 0 before the first."""
    sums: Mapping[str, float]
    """The numbers of `SUMMED` that any line has, over all lines."""


def _log(file: Path) -> Log:
    return _read_log(file, state_of(file)) if file.is_file() else Log(0, 0, {})


# A list is drawn whenever one run grows: the logs of a hundred others are not read again for it.
@lru_cache(maxsize=10_000)
def _read_log(file: Path, state: State) -> Log:
    del state
    lines, sums = RunFolder(file.parent).lines(file.name), Counter[str]()
    for line in lines:
        sums.update({name: line[name] for name in SUMMED if name in line})
    return Log(len(lines), lines[-1]["step"] if lines else 0, sums)


def _seconds(folder: RunFolder, timing: Log) -> float | None:
    if (folder.path / "report.json").is_file():
        seconds = folder.report().get("seconds")
        return None if seconds is None else float(seconds)
    return timing.sums.get("seconds/step")


def _cost(metrics: Log, timing: Log) -> dict[str, float] | None:
    if "rollout/tokens_sampled" not in metrics.sums:
        return None
    return {
        "sampled_tokens": metrics.sums["rollout/tokens_sampled"],
        "rollout_seconds": timing.sums.get("seconds/rollout", 0.0),
        "update_seconds": timing.sums.get("seconds/update", 0.0),
    }


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
