"""Checkpoints: folders that are whole or not there at all.

A checkpoint is written beside its place, flushed to disk, and renamed into place, so that a kill or
a full disk at any moment leaves the last good one. It is an ordinary model folder, which
`AutoModelForCausalLM.from_pretrained` loads, plus `state.json` and `learner.pt`.
"""

import json
import os
import pickle
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError
from torch import nn

from turnwise.errors import DataError, InfrastructureError
from turnwise.models.vision import reader_of

STATE = "state.json"
LEARNER = "learner.pt"
NAME = re.compile(r"step-(\d{6,})(\.replaced)?")


SFT, COLD_START, RL, PREFERENCES = "sft", "cold_start", "rl", "preferences"
IMITATION = "imitation"
"""Phases of a run. RL has its checkpoints in the root itself, the others in folders of theirs.
Imitation is what RL is compared with: no run goes on from it to another phase."""


class Saveable(Protocol):
    """A model or tokenizer of transformers or peft."""

    def save_pretrained(self, save_directory: str) -> Any:
        """Write everything needed to load it again into the folder."""
        ...


@dataclass(frozen=True)
class Checkpoint:
    """A whole checkpoint, opened. The model is loaded from `folder` by whoever wants it."""

    folder: Path
    step: int
    state: dict[str, Any]
    """As given to `save`: cursors, counters."""
    learner: dict[str, Any]
    """As given to `save`: optimizer state."""


def save(
    root: Path,
    step: int,
    model: Saveable,
    tokenizer: Saveable,
    state: Mapping[str, Any],
    learner: Mapping[str, Any],
) -> Path:
    """Write the checkpoint of a step and return its folder, `root/step-000012`.

    `state` must be JSON; `learner` may hold tensors, numbers, strings, lists and dicts. Raises
    InfrastructureError when the disk fails; then nothing new is left behind.
    """
    target = root / f"step-{step:06d}"
    temporary = root / f".{target.name}.{os.getpid()}"
    try:
        root.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        model.save_pretrained(str(temporary))
        _save_tokenizer(tokenizer, temporary)
        reader = reader_of(model) if isinstance(model, nn.Module) else None
        if reader is not None:
            reader.save(temporary)
        _write_learner(temporary / LEARNER, learner)
        _write_state(temporary, step, state)
        for path in [*temporary.rglob("*"), temporary]:
            _flush(path)
        _move(temporary, target)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(temporary, ignore_errors=True)
        good = latest(root)
        kept = f"the last good checkpoint is {good}" if good else "there is no earlier checkpoint"
        raise InfrastructureError(f"checkpoint {target} not saved: {error}; {kept}") from error
    return target


def load(folder: Path) -> Checkpoint:
    """Open a checkpoint. Raises DataError, in one line, when any of its files is damaged."""
    try:
        state = json.loads((folder / STATE).read_text(encoding="utf-8"))
        for name, size in state["files"].items():
            if (folder / name).stat().st_size != size:
                raise DataError(f"checkpoint {folder}: {name} is damaged; delete the folder")
        learner = torch.load(folder / LEARNER, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise DataError(f"checkpoint {folder}: {error.filename} is missing") from None
    except (ValueError, KeyError, RuntimeError, pickle.UnpicklingError) as error:
        line = str(error).splitlines()[0]
        raise DataError(f"checkpoint {folder} is damaged: {line}; delete the folder") from None
    return Checkpoint(folder, state["step"], state["state"], learner)


def latest(root: Path) -> Path | None:
    """The newest checkpoint in the folder, or None."""
    found = _all(root)
    return found[-1] if found else None


def at(root: Path, step: int) -> Path | None:
    """The checkpoint of a step, or None."""
    return next((folder for folder in reversed(_all(root)) if _step(folder) == step), None)


def prune(root: Path, keep: int, best: int | None = None) -> None:
    """Delete all but the newest `keep` checkpoints and that of step `best`, and what interrupted
    saves left behind."""
    for folder in _all(root)[:-keep]:
        if _step(folder) != best:
            shutil.rmtree(folder)
    for folder in root.glob(".step-*"):
        shutil.rmtree(folder)


def newest(root: Path) -> Path | None:
    """Where a run is to go on: in or after the preference stage, after an RL step, after the cold
    start, or within it."""
    folders = (root / PREFERENCES, root, root / COLD_START, root / SFT)
    found = (latest(folder) for folder in folders)
    return next((folder for folder in found if folder is not None), None)


def _save_tokenizer(tokenizer: Saveable, folder: Path) -> None:
    try:
        tokenizer.save_pretrained(str(folder))
    except Exception as error:
        raise OSError(f"tokenizer: {error}") from error


def _all(root: Path) -> list[Path]:
    """Oldest first; of two of the same step, the one being replaced is the older."""
    matches = ((NAME.fullmatch(path.name), path) for path in root.glob("step-*"))
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


def _write_state(folder: Path, step: int, state: Mapping[str, Any]) -> None:
    sizes = {path.name: path.stat().st_size for path in sorted(folder.iterdir()) if path.is_file()}
    text = json.dumps({"step": step, "state": dict(state), "files": sizes}, indent=1)
    (folder / STATE).write_text(text, encoding="utf-8")


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
    if target.exists():
        target.rename(replaced)
    temporary.rename(target)
    _flush(target.parent)
    shutil.rmtree(replaced, ignore_errors=True)
