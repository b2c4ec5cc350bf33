"""A divided model as a folder that `from_pretrained` loads, with files of weights from each rank.

Weights are put together one at a time, and each is kept by the rank that writes it, so none ever
holds the model. Of adapters, which all ranks have whole, the first one writes peft's folder. Not
here: the tokenizer, and what else a checkpoint has.
"""

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor, nn

from turnwise.cluster.learners.process_group import ProcessGroup
from turnwise.learning.ranks import dealt

FILE_BYTES = 4 << 30
"""The size at which another file is begun."""
FEWEST_FILES = 64
"""Files that weights go through, at least, on their way to the model of the first rank."""
INDEX = "model.safetensors.index.json"


class ModelFiles:
    """Copies, on the processor, of the weights that this rank writes. All ranks make one together.

    Weights that are one (tied embeddings) are there once, as `save_pretrained` has them. Names are
    the model's own, which transformers loads too where a model was published under others.
    """

    def __init__(self, ranks: ProcessGroup, model: Any) -> None:
        self._model, self._first = model, ranks.rank == 0
        self._files: dict[str, dict[str, Tensor]] = {}
        self._place: dict[str, str] = {}
        self._size = 0
        self._adapters: dict[str, Tensor] = {}
        if hasattr(model, "peft_config"):
            trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
            self._adapters = {name: ranks.copied(p) for name, p in trained.items() if self._first}
        else:
            self._take(ranks, _weights(model))

    def _take(self, ranks: ProcessGroup, weights: dict[str, Tensor]) -> None:
        """Put the weights together, and keep those of this rank's files."""
        files = _files(weights, ranks.count, FILE_BYTES)
        for number, (rank, held) in enumerate(files, 1):
            name = f"model-{number:05d}-of-{len(files):05d}.safetensors"
            for key in held:
                whole = ranks.whole(weights[key])
                self._place[key] = name
                self._size += _bytes(whole)
                if rank == ranks.rank:
                    own = self._files.setdefault(name, {})
                    own[key] = whole.to("cpu", copy=True).contiguous()

    def write(self, folder: Path) -> list[Path]:
        """Write this rank's files, and on the first one what else the model has; returns those of
        weights. Raises OSError and SafetensorError."""
        for name, weights in self._files.items():
            save_file(weights, folder / name, metadata={"format": "pt"})
        if self._first and self._adapters:
            self._model.save_pretrained(str(folder), state_dict=self._adapters)
        elif self._first:
            index = {"metadata": {"total_size": self._size}, "weight_map": self._place}
            (folder / INDEX).write_text(json.dumps(index, indent=1), encoding="utf-8")
            self._model.config.save_pretrained(folder)
            if self._model.can_generate():
                self._model.generation_config.save_pretrained(folder)
        return [folder / name for name in self._files]


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
    ranks.gather(None)


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
    sizes = [_bytes(tensor) for tensor in weights.values()]
    files: list[tuple[int, list[str]]] = []
    for rank, hand in enumerate(dealt(sizes, count)):
        filled = most
        for place in hand:
            if filled >= most:
                files.append((rank, []))
                filled = 0
            files[-1][1].append(names[place])
            filled += sizes[place]
    return files


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
