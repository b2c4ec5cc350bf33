"""Tensors of checkpoints: by name, in safetensors files, each written by the process that has it.

By torch.distributed.checkpoint: a part of a tensor carries its place in the whole, so what any
number of processes has written any other number reads, each its own part and no more. No file holds
code.
"""

import json
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import (
    HuggingFaceStorageReader,
    HuggingFaceStorageWriter,
)
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from turnwise.errors import DataError

FILE_BYTES = 1 << 30
"""The size at which a process begins another file: each is put together in memory."""


@dataclass(frozen=True)
class SavedTensor:
    """A tensor of a checkpoint that has not been read yet; any process can (`read`)."""

    name: str
    folder: str = ""


def parted(state: Mapping[str, Any], prefix: str = "") -> tuple[dict[str, Any], dict[str, Tensor]]:
    """A state with SavedTensors in place of tensors, and these by name; those in lists stay."""
    rest: dict[str, Any] = {}
    tensors: dict[str, Tensor] = {}
    for key, value in state.items():
        name = f"{prefix}{key}"
        if isinstance(value, Tensor):
            rest[key], tensors[name] = SavedTensor(name), value
        elif isinstance(value, Mapping):
            rest[key], found = parted(value, f"{name}.")
            # A key with a dot could have the name of a key inside a table.
            assert not found.keys() & tensors.keys()
            tensors |= found
        else:
            rest[key] = value
    return rest, tensors


def placed(state: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    return {
        key: (
            replace(value, folder=str(folder))
            if isinstance(value, SavedTensor)
            else placed(value, folder)
            if isinstance(value, dict)
            else value
        )
        for key, value in state.items()
    }


def write(
    folder: Path, tensors: Mapping[str, Tensor], group: dist.ProcessGroup | None = None
) -> None:
    """Write tensors; of those divided over the group's processes, which all call this, each its
    part. Raises OSError where the disk fails, for whichever of the processes."""
    if not tensors:
        return
    files = _files(tensors, 1 if group is None else dist.get_world_size(group))
    writer = HuggingFaceStorageWriter(str(folder), files, save_distributed=True)
    with _as(OSError, folder):
        save(_unshared(tensors), storage_writer=writer, process_group=group, no_dist=group is None)
    rank = 0 if group is None else dist.get_rank(group)
    # Its own files alone: others may not be whole yet.
    for file in folder.glob(f"shard-{rank + 1:05d}-*"):
        _order_metadata(file)


def _order_metadata(path: Path) -> None:
    """Sort a safetensors file's metadata, in any order before: equal tensors, equal bytes."""
    with path.open("r+b") as file:
        # The format begins with the header's length, in 8 bytes.
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
        header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
        assert len(text) <= length, f"{len(text)} bytes of header for {length}"
        file.seek(8)
        # The header keeps its length, since tensors are found by their distance from its end.
        # Blanks behind the JSON are allowed.
        file.write(text.ljust(length))


def read(state: Mapping[str, Any], into: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The state with its saved tensors: new ones on the processor, or those of `into`, filled; of
    divided ones each process reads its part. Raises DataError where a file cannot be read."""
    folders = {saved.folder for saved in _saved(state)}
    readers = {folder: HuggingFaceStorageReader(folder) for folder in folders}
    known = {folder: reader.read_metadata() for folder, reader in readers.items()}
    targets: dict[str, dict[str, Tensor]] = {folder: {} for folder in folders}

    def filled(state: Mapping[str, Any], into: Mapping[str, Any]) -> dict[str, Any]:
        found = dict(state)
        for key, value in state.items():
            if isinstance(value, dict):
                found[key] = filled(value, into.get(key, {}))
            if isinstance(value, SavedTensor):
                found[key] = into[key] if key in into else _empty(known[value.folder], value.name)
                targets[value.folder][value.name] = found[key]
        return found

    whole = filled(state, into or {})
    for folder, tensors in targets.items():
        with _as(DataError, Path(folder)):
            # no_dist: each process reads its parts at its own time.
            load(dict(tensors), storage_reader=readers[folder], no_dist=True)
    return whole


def _saved(state: Mapping[str, Any]) -> Iterator[SavedTensor]:
    for value in state.values():
        if isinstance(value, SavedTensor):
            yield value
        elif isinstance(value, dict):
            yield from _saved(value)


def _empty(metadata: Any, name: str) -> Tensor:
    saved = metadata.state_dict_metadata[name]
    return torch.empty(saved.size, dtype=saved.properties.dtype)


def _files(tensors: Mapping[str, Tensor], count: int) -> dict[str, int]:
    """The number, from 1, of the file of a process that each tensor goes to."""
    files: dict[str, int] = {}
    before = 0
    for name, tensor in tensors.items():
        # Sizes are those of whole tensors, of which a process has one part in `count`.
        files[name] = 1 + before // (count * FILE_BYTES)
        before += tensor.numel() * tensor.element_size()
    return files


def _unshared(tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Copies in the place of tensors that share their memory with one before: a file has each."""
    seen: set[tuple[int, int]] = set()
    found: dict[str, Any] = {}
    for name, tensor in tensors.items():
        place = (tensor.data_ptr(), tensor.numel())
        # Empty tensors all have the address 0, and share nothing.
        found[name] = tensor.clone() if tensor.numel() and place in seen else tensor
        seen.add(place)
    return found


@contextmanager
def _as(kind: type[Exception], folder: Path) -> Iterator[None]:
    """Raise what has failed in a process as another kind of error, in one line."""
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="torch.distributed is disabled")
            yield
    except CheckpointException as error:  # an error for each process that has one
        rank, (first, _) = min(error.failures.items())
        if not isinstance(first, (OSError, RuntimeError, ValueError)):
            raise
        raise kind(f"{folder.name} of rank {rank}: {str(first).splitlines()[0]}") from first
