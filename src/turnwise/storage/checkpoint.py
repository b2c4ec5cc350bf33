"""Checkpoints: folders that are whole or not there at all.

A checkpoint is written beside its place, flushed to disk, and renamed into place, so that a kill or
a full disk at any moment leaves the last good one. It is an ordinary model folder, which
`AutoModelForCausalLM.from_pretrained` loads, plus `state.json`, the learner's state in `learner.pt`
and its tensors in `learner/` (`tensors.py`): one form, whatever number of processes has written it.
What a disk does to it afterwards is found by `SHA256SUMS`, which has a line for every other file
and can be checked by hand: `sha256sum --check SHA256SUMS`.
"""

import hashlib
import json
import os
import pickle
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError
from torch import nn

from turnwise.errors import DataError, InfrastructureError
from turnwise.forward.images import reader_of
from turnwise.storage import tensors
from turnwise.storage.tensors import SavedTensor
from turnwise.wings import wings

STATE = "state.json"
LEARNER = "learner.pt"
TENSORS = "learner"
SUMS = "SHA256SUMS"
SUM = re.compile(r"([0-9a-f]{64})  (.+)")
NAME = re.compile(r"step-(\d{6,})(\.replaced)?")


COLD_START, REINFORCEMENT, IMITATION = "cold_start", "reinforcement", "imitation"
"""The run's own stages that learn, and so save; wings have more. No run goes on from imitation,
which RL is compared with, to another stage."""


def stages_of_a_run() -> list[str]:
    """List the stages from whose checkpoints a run goes on, the last one first."""
    of_wings = wings().all_stages()
    first = [name for name, (_, place) in of_wings.items() if place == "first"]
    last = [name for name in of_wings if name not in first]
    return [*last, REINFORCEMENT, COLD_START, *first]


def before_rl(checkpoints: Path) -> Path | None:
    """The checkpoint that RL begins with: of the cold start, else of a stage before it."""
    stages = stages_of_a_run()
    before = stages[stages.index(COLD_START) :]
    return next(filter(None, (latest(root_of(checkpoints, stage)) for stage in before)), None)


def follows_rl(stage: str) -> bool:
    """Whether a stage comes after RL."""
    return stage in wings().all_stages() and wings().all_stages()[stage][1] == "after RL"


class Saveable(Protocol):
    """A model or tokenizer of transformers or peft."""

    def save_pretrained(self, save_directory: str) -> Any: ...


@dataclass(frozen=True)
class Checkpoint:
    """A whole checkpoint, opened. Its model is not loaded: it lies in `folder`."""

    folder: Path
    step: int
    state: dict[str, Any]
    """The state given to `save`: the stage, counters."""
    learner: dict[str, Any]
    """The learner's state given to `save`; its tensors are not read yet: `tensors.read`."""

    @property
    def stage(self) -> str:
        """The stage that saved it."""
        return str(self.state["stage"])


def root_of(checkpoints: Path, stage: str) -> Path:
    """The folder of a stage's checkpoints: RL has the run's own, the others folders in it."""
    return checkpoints if stage == REINFORCEMENT else checkpoints / stage


def save(
    root: Path,
    step: int,
    model: Saveable,
    tokenizer: Saveable,
    state: Mapping[str, Any],
    learner: Mapping[str, Any],
) -> Path:
    """Write a step's checkpoint and return its folder, `root/step-000012`; raises as `save_with`.
    `state` must be JSON; `learner` may hold tensors, numbers, strings, lists and dicts."""

    def write(folder: Path) -> dict[str, str]:
        model.save_pretrained(str(folder))
        reader = reader_of(model) if isinstance(model, nn.Module) else None
        if reader is not None:
            reader.save(folder)
        save_beside_weights(folder, tokenizer, learner)
        tensors.write(folder / TENSORS, tensors.parted(learner)[1])
        return {}

    return save_with(root, step, state, write)


def save_with(
    root: Path, step: int, state: Mapping[str, Any], write: Callable[[Path], dict[str, str]]
) -> Path:
    """Write a step's checkpoint and return its folder; `write` fills it but for the state, and
    returns the checksums that it knows.

    Remains of interrupted saves are deleted first: no other process may be saving there. Raises
    InfrastructureError when the disk fails; then nothing new is left behind.
    """
    target, temporary = root / f"step-{step:06d}", draft(root, step)
    try:
        root.mkdir(parents=True, exist_ok=True)
        delete_drafts(root)
        temporary.mkdir()
        known = write(temporary)
        text = json.dumps({"step": step, "state": dict(state)}, indent=1)
        (temporary / STATE).write_text(text, encoding="utf-8")
        _write_sums(temporary, known)
        # Before the rename, or the name could reach the disk before what it names.
        for path in [*temporary.rglob("*"), temporary]:
            _flush(path)
        _move(temporary, target)
    # safetensors has an error of its own for a disk that is full.
    except (OSError, SafetensorError) as error:
        shutil.rmtree(temporary, ignore_errors=True)
        good = latest(root)
        kept = f"the last good checkpoint is {good}" if good else "no earlier checkpoint is there"
        raise InfrastructureError(
            f"checkpoint {target} not saved: {error}; {kept}. Mend that, and go on with --resume"
        ) from error
    return target


def draft(root: Path, step: int) -> Path:
    """The folder in which this process writes the checkpoint of a step."""
    # The dot keeps a draft from being found as a checkpoint, by `step-*`.
    return root / f".step-{step:06d}.{os.getpid()}"


def delete_drafts(root: Path) -> None:
    """Delete what interrupted saves have left in the folder of a stage."""
    for leftover in root.glob(".step-*"):
        shutil.rmtree(leftover, ignore_errors=True)


def load(folder: Path) -> Checkpoint:
    """Open a checkpoint. Raises DataError when a byte of any file is not what was written."""
    check(folder)
    try:
        state = json.loads((folder / STATE).read_text(encoding="utf-8"))
        # weights_only: a checkpoint may come from elsewhere, and nothing in it is run.
        with torch.serialization.safe_globals([SavedTensor]):
            learner = torch.load(folder / LEARNER, map_location="cpu", weights_only=True)
        placed = tensors.placed(learner, folder / TENSORS)
        return Checkpoint(folder, state["step"], state["state"], placed)
    except (OSError, ValueError, KeyError, RuntimeError, pickle.UnpicklingError) as error:
        line = str(error).splitlines()[0]
        raise DataError(f"checkpoint {folder} is damaged: {line}") from None


def check_learner(folder: Path) -> None:
    """Raise DataError for a checkpoint of an earlier version, of which only weights can be read."""
    if not (folder / TENSORS).is_dir():
        raise DataError(
            f"checkpoint {folder} is of an earlier version of turnwise, and its optimizer's state "
            "cannot be read: keep its weights with `turnwise export`, and begin again with "
            "--overwrite"
        )


def check(folder: Path) -> None:
    """Raise DataError for the first file that is missing, unreadable, or not as its checksum."""
    try:
        text = (folder / SUMS).read_text(encoding="utf-8")
        sums = {match[2]: match[1] for match in map(SUM.fullmatch, text.splitlines()) if match}
        # A list cut short checks what it names: it must name what is always there.
        if len(sums) != text.count("\n") or not {STATE, LEARNER} <= sums.keys():
            raise DataError(f"checkpoint {folder}: {SUMS} is damaged")
        for name, expected in sums.items():
            if checksum(folder / name) != expected:
                raise DataError(f"checkpoint {folder}: {name} is damaged")
    except FileNotFoundError as error:
        raise DataError(f"checkpoint {folder}: {error.filename} is missing") from None
    except (OSError, ValueError) as error:
        raise DataError(f"checkpoint {folder} cannot be read: {error}") from None


def latest(root: Path) -> Path | None:
    found = _all(root)
    return found[-1] if found else None


def at(root: Path, step: int) -> Path | None:
    return next((folder for folder in reversed(_all(root)) if _step(folder) == step), None)


def prune(root: Path, keep: int, best: int | None = None) -> None:
    """Delete all but the newest `keep` checkpoints and that of step `best`; and the replaced."""
    for folder in root.glob("step-*.replaced"):
        # Without its successor the replaced one is the last good checkpoint.
        if folder.with_suffix("").is_dir():
            shutil.rmtree(folder, ignore_errors=True)
    for folder in _all(root)[:-keep]:
        if _step(folder) != best:
            shutil.rmtree(folder, ignore_errors=True)


def newest(root: Path) -> tuple[Checkpoint | None, dict[Path, str]]:
    """The checkpoint from which a run goes on: that of the last of its stages that has one. None
    where nothing was saved.

    A damaged one is passed over for the one before it, and returned with what is wrong with it.
    Raises DataError where there are some and none is whole.
    """
    damaged: dict[Path, str] = {}
    for stage in stages_of_a_run():
        found, passed_over = newest_of_stage(root_of(root, stage))
        damaged |= passed_over
        if found is not None:
            return found, damaged
    if damaged:
        first = next(iter(damaged.values()))
        raise DataError(f"{first}, and no earlier one is whole: begin again with --overwrite")
    return None, {}


def checkpoints_beside(folder: Path) -> Path:
    """The folder of all checkpoints of the run that a checkpoint belongs to."""
    stages = (*stages_of_a_run(), IMITATION)
    return folder.parent.parent if folder.parent.name in stages else folder.parent


def newest_of_stage(root: Path) -> tuple[Checkpoint | None, dict[Path, str]]:
    """The newest whole checkpoint of a stage, if any, and the damaged ones after it."""
    damaged: dict[Path, str] = {}
    for folder in reversed(_all(root)):
        try:
            return load(folder), damaged
        except DataError as error:
            damaged[folder] = str(error)
    return None, damaged


def set_aside(folder: Path) -> Path:
    """Rename a damaged checkpoint, so that it is not taken for one again; return its new place."""
    target = folder.with_name(f"{folder.name}.damaged")
    shutil.rmtree(target, ignore_errors=True)
    try:
        folder.rename(target)
    except OSError as error:
        raise InfrastructureError(f"{folder} cannot be renamed: {error.strerror}") from error
    return target


def save_beside_weights(folder: Path, tokenizer: Saveable, learner: Mapping[str, Any]) -> None:
    """Write the tokenizer, and a learner's state but for its tensors. Raises OSError."""
    try:
        tokenizer.save_pretrained(str(folder))
    # The library tokenizers raises a plain Exception where the disk fails.
    except Exception as error:
        raise OSError(f"tokenizer: {error}") from error
    _write_learner(folder / LEARNER, tensors.parted(learner)[0])


def _all(root: Path) -> list[Path]:
    """Oldest first; of two of the same step, the one being replaced is the older."""
    folders = (path for path in root.glob("step-*") if path.is_dir())
    matches = ((NAME.fullmatch(path.name), path) for path in folders)
    found = [(int(match[1]), match[2] is None, path) for match, path in matches if match]
    return [path for *_, path in sorted(found)]


def _step(folder: Path) -> int:
    return int(folder.name.removeprefix("step-").partition(".")[0])


def _write_learner(path: Path, learner: Mapping[str, Any]) -> None:
    try:
        torch.save(dict(learner), path)
    except RuntimeError as error:  # what torch's writer makes of a full disk
        reason = str(error).splitlines()[0]
        raise OSError(f"{path.name} could not be written whole ({reason})") from error


def _write_sums(folder: Path, known: Mapping[str, str]) -> None:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    names = [path.relative_to(folder).as_posix() for path in files]
    lines = [f"{known.get(name) or checksum(folder / name)}  {name}\n" for name in names]
    (folder / SUMS).write_text("".join(lines), encoding="utf-8")


def checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _flush(path: Path) -> None:
    """fsync a file, or a folder's list of names."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _move(temporary: Path, target: Path) -> None:
    """Rename into place; a checkpoint of the same step stays whole until that is done."""
    replaced = target.with_name(f"{target.name}.replaced")
    shutil.rmtree(replaced, ignore_errors=True)
    # A kill between the two renames leaves the replaced one, which `_all` finds as well.
    if target.exists():
        target.rename(replaced)
    temporary.rename(target)
    # The new name is on the disk before the old checkpoint is deleted.
    _flush(target.parent)
    shutil.rmtree(replaced, ignore_errors=True)
