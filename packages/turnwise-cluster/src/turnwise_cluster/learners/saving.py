"""Checkpoints and weights of a divided model, to which each rank writes files; checkpoints while it
goes on learning.

Each rank first copies what it will write: its parts of the optimizer's moments, and some of the
weights, whole. Then a thread in each writes its copies, and they tell each other how it went, in a
group of their own. Weights are put together one at a time, and each is kept by the rank that writes
it, so none ever holds the model; they are a folder that `from_pretrained` loads (peft's of
adapters, which all ranks have whole, by the first one). Moments are written by
torch.distributed.checkpoint (`storage/tensors.py`), which cannot write weights by the names they
were published with: that may need all tensors of a layer.
"""

import json
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch.distributed as dist
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers.core_model_loading import revert_weight_conversion

from turnwise.errors import InfrastructureError
from turnwise.forward.images import reader_of
from turnwise.learning.ranks import partition
from turnwise.storage import tensors
from turnwise.storage.checkpoint import TENSORS, checksum
from turnwise_cluster.learners.process_group import ProcessGroup

FILE_BYTES = 4 << 30
"""The size at which another file is begun."""
FEWEST_FILES = 64
"""Files that weights go through, at least, on their way to the model of the first rank."""
INDEX = "model.safetensors.index.json"


class PartOfCheckpoint:
    """Copies of what one rank writes of a checkpoint. All ranks make one at the same time.

    Args:
        state: of the learners, with this rank's parts of tensors.
    """

    def __init__(self, ranks: ProcessGroup, model: nn.Module, state: Mapping[str, Any]) -> None:
        self._group = ranks.beside
        self._model = ModelFiles(ranks, model)
        divided = tensors.parted(state)[1]
        self._tensors = {name: ranks.copied(tensor) for name, tensor in divided.items()}

    def add(self, others: Mapping[str, Tensor]) -> None:
        """Copy tensors that this rank alone has, of models beside the learners, to be written with
        the rest; those of the learners are there already."""
        alone = {name: own for name, own in others.items() if name not in self._tensors}
        self._tensors |= {name: own.detach().to("cpu", copy=True) for name, own in alone.items()}

    def write(self, folder: Path) -> dict[str, str]:
        """Write the copies, when rank 0 does too, whose folder it is; returns the checksums of the
        files of all ranks. Raises OSError, on all of them, where the disk fails for one, or a rank
        ends."""
        try:
            return self._write(folder)
        except RuntimeError as error:  # collectives have no error of their own
            raise OSError(str(error).splitlines()[0]) from error

    def _write(self, folder: Path) -> dict[str, str]:
        dist.barrier(self._group)  # rank 0 comes when the folder is there
        problem, own = "", []
        try:
            own = self._model.write(folder, self._gathered)
        except (OSError, SafetensorError) as error:
            problem = str(error)
        # All hear of it, since those that went on would wait for the one that failed.
        if problem := next(filter(None, self._gathered(problem)), ""):
            raise OSError(problem)
        tensors.write(folder / TENSORS, self._tensors, self._group)
        own += (folder / TENSORS).glob(f"shard-{dist.get_rank() + 1:05d}-*")
        sums = {path.relative_to(folder).as_posix(): checksum(path) for path in own}
        return {name: one for found in self._gathered(sums) for name, one in found.items()}

    def _gathered(self, value: Any) -> list[Any]:
        found: list[Any] = [None] * dist.get_world_size(self._group)
        dist.all_gather_object(found, value, self._group)
        return found


class Saving:
    """Work that a thread does, of which there is one at a time.

    Args:
        seconds: deadline of each work, from its beginning.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._what = ""
        self._deadline = 0.0
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None

    def begin(self, work: Callable[[], Any], what: str) -> None:
        """Begin some work; `wait` has been called since the last one was begun."""

        def do() -> None:
            try:
                work()
            except BaseException as error:  # noqa: BLE001 - raised by `wait`
                self._error = error

        self._what, self._deadline = what, time.monotonic() + self._seconds
        self._thread = threading.Thread(target=do, name=what, daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Wait for the end of the work, and raise what it has raised. Raises InfrastructureError
        where it goes on past the deadline. Idempotent."""
        if self._thread is not None:
            self._thread.join(max(0.0, self._deadline - time.monotonic()))
            if self._thread.is_alive():
                raise InfrastructureError(
                    f"{self._what} is not done within cluster.seconds = {self._seconds:g}"
                )
        error, self._error = self._error, None
        if error is not None:
            raise error


class ModelFiles:
    """Copies, on the processor, of the weights that this rank writes. All ranks make one together.

    Weights that are one (tied embeddings) are there once. Names and shapes in the files are those
    that the model was published with, as `save_pretrained` has them: the weights of a layer, of
    which some may have to be cut or joined for that, are written by one rank.
    """

    def __init__(self, ranks: ProcessGroup, model: Any) -> None:
        self._model, self._rank = model, ranks.rank
        self._weights: dict[str, Tensor] = {}
        self._adapters: dict[str, Tensor] = {}
        if hasattr(model, "peft_config"):
            trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
            first = ranks.rank == 0
            self._adapters = {name: ranks.copied(p) for name, p in trained.items() if first}
        else:
            self._take(ranks, _weights(model))

    def _take(self, ranks: ProcessGroup, weights: dict[str, Tensor]) -> None:
        """Put the weights together, and keep those of this rank's layers."""
        layers: dict[str, list[str]] = {}
        for name in weights:
            layers.setdefault(_layer(name), []).append(name)
        names = list(layers.values())
        sizes = [sum(_bytes(weights[name]) for name in layer) for layer in names]
        for rank, hand in enumerate(partition(sizes, ranks.count)):
            for name in (name for place in hand for name in names[place]):
                whole = ranks.whole(weights[name])  # with every rank's help
                if rank == ranks.rank:
                    self._weights[name] = whole.to("cpu", copy=True).contiguous()

    def write(self, folder: Path, gather: Callable[[Any], list[Any]]) -> list[Path]:
        """Write this rank's files, and on the first one what else the model has; returns those of
        weights. `gather` collects what each rank gives it, in order. Raises OSError and
        SafetensorError."""
        published = revert_weight_conversion(self._model, self._weights)
        files = _cut({name: one.contiguous() for name, one in published.items()}, FILE_BYTES)
        sizes = [{name: _bytes(tensor) for name, tensor in file.items()} for file in files]
        every: list[list[dict[str, int]]] = gather(sizes)
        before, count = sum(map(len, every[: self._rank])), sum(map(len, every))
        names = [f"model-{number:05d}-of-{count:05d}.safetensors" for number in range(1, count + 1)]
        own = [folder / name for name in names[before : before + len(files)]]
        for path, file in zip(own, files, strict=True):
            save_file(file, path, metadata={"format": "pt"})
        if not self._rank:
            self._write_rest(folder, dict(zip(names, [f for of in every for f in of], strict=True)))
        return own

    def _write_rest(self, folder: Path, sizes: dict[str, dict[str, int]]) -> None:
        """Write the adapters, or the index of the files with the sizes of their weights, and
        settings."""
        if self._adapters:
            self._model.save_pretrained(str(folder), state_dict=self._adapters)
        else:
            places = {key: name for name, file in sizes.items() for key in file}
            total = sum(sum(file.values()) for file in sizes.values())
            index = {"metadata": {"total_size": total}, "weight_map": places}
            (folder / INDEX).write_text(json.dumps(index, indent=1), encoding="utf-8")
            self._model.config.save_pretrained(folder)
            if self._model.can_generate():
                self._model.generation_config.save_pretrained(folder)
        reader = reader_of(self._model)
        if reader is not None:
            reader.save(folder)


def write_weights(ranks: ProcessGroup, model: nn.Module, folder: Path) -> None:
    """Write the weights of a divided model by the model's own names, each rank some of the files,
    of which it has no more than two at once. All ranks call this together, and come back when all
    is written. Raises OSError and SafetensorError."""
    weights = _weights(model)
    most = min(FILE_BYTES, sum(map(_bytes, weights.values())) // FEWEST_FILES)
    files, writing = _files(weights, ranks.count, most), None
    with ThreadPoolExecutor(1) as writer:
        for number, (rank, held) in _in_turn(files):
            own: dict[str, Tensor] = {}
            for key in held:
                whole = ranks.whole(weights[key])
                if rank == ranks.rank:
                    own[key] = whole.to("cpu").contiguous()
            if own:
                if writing is not None:
                    writing.result()
                name = folder / f"model-{number:05d}.safetensors"
                writing = writer.submit(save_file, own, name, {"format": "pt"})
        if writing is not None:
            writing.result()
    ranks.gather(None)  # returns when every rank has written


def _in_turn(files: list[tuple[int, list[str]]]) -> list[tuple[int, tuple[int, list[str]]]]:
    """The files with their numbers, such that ranks take turns: they write at the same time."""
    turns: Counter[int] = Counter()
    placed = []
    for number, file in enumerate(files, 1):
        placed.append((turns[file[0]], number, file))
        turns[file[0]] += 1
    return [(number, file) for _, number, file in sorted(placed)]


def _weights(model: nn.Module) -> dict[str, Tensor]:
    """The tensors of a state dict, each by one name."""
    kept = model.state_dict().keys()
    named = [*model.named_parameters(), *model.named_buffers()]
    return {name: tensor for name, tensor in named if name in kept}


def _files(weights: dict[str, Tensor], count: int, most: int) -> list[tuple[int, list[str]]]:
    """The rank and the weights of each file; ranks write about as much as each other."""
    names = list(weights)
    hands = partition([_bytes(tensor) for tensor in weights.values()], count)
    held = [{names[place]: weights[names[place]] for place in hand} for hand in hands]
    return [(rank, list(file)) for rank, own in enumerate(held) for file in _cut(own, most)]


def _layer(name: str) -> str:
    """The part of a weight's name that others of its layer have too; of one beside the layers all
    of it."""
    layer = re.match(r".*?\.\d+\.", name)
    return name if layer is None else layer[0]


def _cut(weights: dict[str, Tensor], most: int) -> list[dict[str, Tensor]]:
    """Put weights into files of about so many bytes."""
    files: list[dict[str, Tensor]] = []
    filled = most
    for name, tensor in weights.items():
        if filled >= most:
            files.append({})
            filled = 0
        files[-1][name] = tensor
        filled += _bytes(tensor)
    return files


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
