"""A run on disk: what is written while training, and how it is read back.

    config.toml          the recipe with every value spelled out
    moves.jsonl          one line for each resume with other settings of the machine: moves.py
    cold_start.jsonl     one line for each step of the cold start
    metrics.jsonl        one line for each RL step; the same bytes for the same seed
    validation.jsonl     one line for each evaluation during RL
    timing.jsonl         seconds and tokens per second of each RL step
    no_signal.jsonl      one line for each RL step that taught nothing
    cpt.jsonl, imitation.jsonl, preferences.jsonl   one line for each step of those stages
    timeline/*.parquet   what episodes and the learner did in each RL step, and when: timeline.py
    trajectories/*.parquet   every trajectory with the provenance of every token
    images/*.png         what the model was shown, each once, named by its content
    tokenizer/           decodes them
    audits/*.json        what was checked, before the run and of it: audits.py
    evaluations/*.json   each evaluation as soon as it is finished
    trackers/            files of experiment trackers, if there are any
    vllm/                logs of servers, and the newest weights while they run
    checkpoints/         see checkpoint.py
    reward_model.jsonl   one line for each step of a reward model
    reward_model.json    how far it is right about held-out tasks of its data
    judge.jsonl          answers of a judge, so that no question is asked twice
    report.json, report.md
    lock                 while a process writes: see run_lock.py

`turnwise evaluate --out` writes such a folder too, of one evaluation. Files that other programs may
read while a run writes them are replaced whole, never half-written.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from turnwise.config import Recipe, dump_recipe, load_recipe
from turnwise.config.section import IS_MODEL, IS_PATH
from turnwise.errors import ConfigError, DataError, InfrastructureError, unknown_name
from turnwise.learning.credits import Credits
from turnwise.learning.signals.base import Signals, TokenNumbers
from turnwise.models.places import TINY
from turnwise.registry import whole_target
from turnwise.storage.run_lock import LOCK, locked
from turnwise.storage.timeline import timeline_table
from turnwise.storage.trajectory_rows import SCHEMA, image_name, rows_together, trajectory_row
from turnwise.types import Group

PARTS = (
    *("trajectories", "timeline", "audits", "images", "checkpoints", "evaluations", "tokenizer"),
    *("trackers", "vllm", "learners"),
)
FILES = (
    *("cpt.jsonl", "cold_start.jsonl", "metrics.jsonl", "timing.jsonl", "preferences.jsonl"),
    *("validation.jsonl", "imitation.jsonl", "no_signal.jsonl", "moves.jsonl"),
    *("reward_model.jsonl", "reward_model.json", "judge.jsonl", "report.json", "report.md"),
)
POLICIES = ("base", "cold_start", "sft", "trained", "evaluated", "as_trained")
"""Evaluations of policies in the run's environment; all others are ablations."""
KEPT = ("evaluated", "as_trained")
"""Names of what `evaluate --out` writes, the second one beside others under worse conditions."""


class RunFolder:
    """Paths and formats of a run. Example: RunFolder(Path("runs/demo")).lines("metrics.jsonl")."""

    def __init__(self, path: Path, fresh: bool = False) -> None:
        self.path = path
        self.fresh = fresh
        """Whether a new run begins here, whatever the folder holds."""
        self.checkpoints = path / "checkpoints"
        self.tokenizer = path / "tokenizer"

    @classmethod
    def new(cls, path: Path, overwrite: bool = False) -> "RunFolder":
        """A folder for a new run; nothing is written before `begin`. Raises DataError when it
        already holds one that is not to be overwritten."""
        taken = (path / "config.toml").exists()
        if not taken and path.exists() and not _holds_nothing(path):
            raise DataError(f"{path} is not empty and holds no run: choose another with --run")
        if taken and not overwrite:
            raise DataError(
                f"{path} already holds a run: go on with `turnwise train --resume {path}`, choose "
                "another folder with --run, or replace it with --overwrite"
            )
        return cls(path, fresh=True)

    @classmethod
    def for_evaluation(cls, path: Path) -> "RunFolder":
        """A folder for an evaluation, read as a run's. Raises DataError unless it is empty."""
        if path.exists() and not _holds_nothing(path):
            raise DataError(f"{path} is not empty: choose another folder")
        with new_file(path):
            path.mkdir(parents=True, exist_ok=True)
        return cls(path, fresh=True)

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """An existing run. Raises DataError when the folder holds none."""
        if not (path / "config.toml").is_file():
            raise DataError(f"{path} is not a run folder: it has no config.toml")
        return cls(path)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from writing this run, as `run_lock.locked`; reading it needs no
        lock. Raises DataError where another one writes, or may on another machine."""
        with locked(self.path):
            yield

    def check_run(self) -> None:
        """Raise DataError where an evaluation is kept here, which no run can go on from."""
        if any(self._evaluation_file(name).is_file() for name in KEPT):
            raise DataError(f"{self.path} holds an evaluation and no run: nothing can go on there")

    def begin(self, recipe: Recipe) -> None:
        """Make the folders of a run, a new one in the place of an earlier one; half-written files
        go. Raises DataError when that cannot be done."""
        with new_file(self.path):
            if self.fresh:
                for part in PARTS:
                    shutil.rmtree(self.path / part, ignore_errors=True)
                for file in FILES:
                    (self.path / file).unlink(missing_ok=True)
            for left in self.path.rglob("*.partial"):
                left.unlink()
            for part in PARTS:
                (self.path / part).mkdir(parents=True, exist_ok=True)
        if self.fresh:
            # Last: a folder that has this file holds a run.
            self.write_text("config.toml", dump_recipe(with_whole_paths(recipe)))

    def recipe(self) -> Recipe:
        """The recipe the run was started with. Raises DataError for a damaged file."""
        try:
            return load_recipe(str(self.path / "config.toml"))
        except (ConfigError, OSError) as error:
            raise DataError(f"{self.path}/config.toml is damaged: {error}") from error

    def report(self) -> dict[str, Any]:
        """The report of a finished run. Raises DataError when it is not finished."""
        file = self.path / "report.json"
        if not file.is_file():
            raise DataError(f"{self.path} has no report yet: the run is not finished")
        return _object(file, "go on with the run, which writes it again")

    def append(self, name: str, values: Mapping[str, Any]) -> None:
        """Add a line to a .jsonl file of the run."""
        with writing(self.path / name), (self.path / name).open("a", encoding="utf-8") as file:
            file.write(json.dumps(dict(values)) + "\n")

    def lines(self, name: str) -> list[dict[str, Any]]:
        """Complete lines of a .jsonl file. Raises DataError, with file and line, if damaged."""
        path = self.path / name
        if not path.is_file():
            return []
        with _reading(path):
            data = path.read_bytes()
        found = []
        # What follows the last line break was cut off by a kill, or is being written.
        for number, line in enumerate(data[: data.rfind(b"\n") + 1].splitlines(), 1):
            try:
                found.append(json.loads(line))
                found[-1]["step"]  # every line has one
            except (ValueError, TypeError, KeyError, RecursionError):
                raise DataError(f"{path}, line {number} is damaged: delete that line") from None
        return found

    def rewind(self, name: str, step: int) -> None:
        """Forget the lines after `step`, before a resumed run writes them again."""
        kept = [line for line in self.lines(name) if line["step"] <= step]
        self.write_text(name, "".join(json.dumps(line) + "\n" for line in kept))

    def forget_trajectories(self, step: int) -> None:
        """Delete the trajectories and the times of the steps after `step`."""
        for folder in ("trajectories", "timeline"):
            for file in (self.path / folder).glob("step-*.parquet"):
                if int(file.stem.partition("-")[2]) > step:
                    with writing(file):
                        file.unlink()

    def write_trajectories(
        self,
        name: str,
        groups: Sequence[Group],
        signals: Signals | None = None,
        credits: Credits | None = None,
        numbers: TokenNumbers | None = None,
    ) -> None:
        """All trajectories of a step or an evaluation, one row each, and their images; with a
        step's measurements, credits and numbers of tokens, where known."""
        self._write_images(groups)
        signals, credits = signals or Signals(), credits or Credits({}, frozenset())
        rows = [
            trajectory_row(
                member,
                signals.of(member),
                credits.advantages.get(member.id),
                (numbers or {}).get(member.id),
            )
            for group in groups
            for member in group.trajectories
        ]
        table = pa.Table.from_pylist(rows, schema=SCHEMA)
        with _replaced(self.path / "trajectories" / f"{name}.parquet") as partial:
            pq.write_table(table, partial, rows_together(rows), compression="zstd")

    def write_timeline(
        self, step: int, groups: Sequence[Group], phases: Iterable[tuple[str, float, float]]
    ) -> None:
        with _replaced(self.timeline_file(step)) as partial:
            pq.write_table(timeline_table(groups, phases), partial, compression="zstd")

    def timeline_file(self, step: int) -> Path:
        """The file of a step's times, whether it is there or not."""
        return self.path / "timeline" / f"step-{step:06d}.parquet"

    def _write_images(self, groups: Sequence[Group]) -> None:
        for member in (member for group in groups for member in group.trajectories):
            for image in member.tokens.images:
                target = self.path / "images" / image_name(image)
                if not target.exists():
                    with _replaced(target) as partial:
                        partial.write_bytes(image.png)

    def write_tokenizer(self, tokenizer: Any) -> None:
        """Keep what decodes the trajectories: a tokenizer of transformers."""
        try:
            tokenizer.save_pretrained(str(self.tokenizer))
        # The library tokenizers raises a plain Exception where the disk fails.
        except Exception as error:
            raise InfrastructureError(f"{self.tokenizer} cannot be written: {error}") from error

    def trajectory_files(self) -> list[Path]:
        files = (self.path / "trajectories").glob("*.parquet")
        # In the order in which they were written, which names do not have.
        return sorted(files, key=lambda file: (file.stat().st_mtime_ns, file.name))

    def trajectory_file(self, name: str) -> Path:
        """A Parquet file by its name, or by a step's number. Raises ConfigError for another one."""
        files = {file.stem: file for file in self.trajectory_files()}
        chosen = f"step-{name.lstrip('0').zfill(6)}" if name.isdecimal() else name
        if chosen not in files:
            raise unknown_name("trajectory file", chosen, files)
        return files[chosen]

    def write_evaluation(self, name: str, summary: Mapping[str, Any]) -> None:
        """Keep an evaluation's summary, so that a resumed run need not repeat it."""
        self.write_text(f"evaluations/{name}.json", json.dumps(dict(summary), indent=2) + "\n")

    def evaluation(self, name: str) -> dict[str, Any] | None:
        """A finished evaluation's summary, or None. Raises DataError for a damaged file."""
        path = self._evaluation_file(name)
        return _object(path, "delete it, and it is made again") if path.is_file() else None

    def main_evaluation(self, chosen: str | None = None) -> str:
        """The evaluation that is meant where none is named: the trained policy's, or what `evaluate
        --out` wrote. Raises DataError where there is neither."""
        there = (name for name in ("trained", *KEPT) if self._evaluation_file(name).is_file())
        name = chosen or next(there, None)
        if name is None:
            raise DataError(f"{self.path} has no evaluation of a trained policy yet")
        return name

    def _evaluation_file(self, name: str) -> Path:
        return self.path / "evaluations" / f"{name}.json"

    def evaluations(self) -> dict[str, dict[str, Any]]:
        """All summaries, as in `POLICIES`, then by name. Raises DataError for a damaged file."""
        names = sorted(file.stem for file in (self.path / "evaluations").glob("*.json"))
        # Other names come last: each is found behind the policies, and sort keeps their order.
        names.sort(key=lambda name: (*POLICIES, name).index(name))
        return {name: summary for name in names if (summary := self.evaluation(name)) is not None}

    def write_text(self, name: str, text: str) -> None:
        """Replace a file of the run as a whole."""
        with _replaced(self.path / name) as partial:
            partial.write_text(text, encoding="utf-8")


def with_whole_paths(recipe: Recipe) -> Recipe:
    """The recipe with names of models, data, `path/to/file.py:Name` and existing options made
    absolute, so that it means the same wherever it is read."""
    whole = recipe.with_texts(IS_PATH, lambda path: path and str(Path(path).resolve()))
    whole = whole.with_texts(IS_MODEL, _whole_model)
    values = mapped(whole.model_dump(exclude_none=True), whole_target)
    options = values["environment"]["options"]
    values["environment"]["options"] = mapped(options, _whole_path)
    return type(recipe).model_validate(values)


def mapped(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, dict):
        return {change(key): mapped(entry, change) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [mapped(entry, change) for entry in value]
    return change(value) if isinstance(value, str) else value


def _whole_model(name: str) -> str:
    """Make a model's name absolute where it is a folder, and no name of ours or a hub."""
    return str(Path(name).resolve()) if name not in ("", *TINY) and Path(name).is_dir() else name


def _whole_path(text: str) -> str:
    path = Path(text)
    # A word alone is not taken for a path, also where a folder has its name.
    there = "\n" not in text and ("/" in text or path.suffix) and os.path.exists(path)
    return str(path.resolve()) if there else text


def _holds_nothing(path: Path) -> bool:
    # A process that was killed before its run began has left its lock.
    return path.is_dir() and all(inside.name == LOCK for inside in path.iterdir())


def _object(file: Path, advice: str) -> dict[str, Any]:
    """Read the object in a JSON file. Raises DataError, with the advice, for anything else."""
    try:
        with _reading(file):
            value = json.loads(file.read_bytes())
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise DataError(f"{file} is damaged: {advice}")
    return value


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error


@contextmanager
def _replaced(target: Path) -> Iterator[Path]:
    """Give a file that takes the target's place at the end; of a failure nothing is left."""
    # Beside the target, since a rename is whole only within one file system.
    partial = target.with_name(target.name + ".partial")
    with writing(target):
        try:
            yield partial
            os.replace(partial, target)
        except OSError:
            with suppress(OSError):
                partial.unlink()
            raise


@contextmanager
def new_file(path: Path) -> Iterator[None]:
    """A path that a user has given, and that cannot be written, is the user's mistake."""
    try:
        yield
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error.strerror or error}") from error


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """A disk that fails is no bug: say which file, and that the last checkpoint is whole."""
    try:
        yield
    except OSError as error:
        raise InfrastructureError(
            f"{path} cannot be written: {error.strerror or error}; the last checkpoint is whole"
        ) from error
