"""A forward pass over the model's own caches, for models that the pool does not hold.

Recurrent states, convolutions, attention in chunks, biases by distance: what such a model has to
remember of a text, it puts into a cache of transformers' by itself, as when it generates. A state
cannot go back to an earlier token: a history that parts from what was computed begins anew.
"""

import copy
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from turnwise.errors import NotSupportedError
from turnwise.forward.attention import evaluating
from turnwise.forward.cache import PADDING, CacheExtent, cache_name, cache_of


@dataclass
class Remembered:
    """The state that the model keeps of the first `length` tokens of a history."""

    cache: Any
    length: int


class OwnCaches:
    """The caches of all runs, by where these start."""

    def __init__(self) -> None:
        self.of_runs: dict[int, Remembered] = {}

    def usable(self, run: CacheExtent, length: int) -> int:
        # A state cannot be cut to fewer tokens: it is of use as a whole or not at all.
        found = self.of_runs.get(run.start)
        return length if found is not None and found.length == length else 0

    def begin(self, run: CacheExtent) -> None:
        """Forget what was remembered anywhere in the run."""
        for start in [place for place in self.of_runs if run.start <= place < run.end]:
            del self.of_runs[start]

    @torch.inference_mode()
    def copy(self, source: CacheExtent, targets: Sequence[CacheExtent], columns: slice) -> None:
        """Give other runs all that one remembers, as far as the columns go."""
        found = self.of_runs[source.start]
        if found.length != columns.stop:
            raise RuntimeError(f"a state of {found.length} tokens is not one of {columns.stop}")
        for run in targets:
            self.begin(run)
            # Models write into their caches in place: two runs may not share one.
            self.of_runs[run.start] = copy.deepcopy(found)

    def move(self, moves: Sequence[tuple[int, int, int]]) -> None:
        """Take (source, target, length) of places elsewhere, all at once."""
        # All sources first: a target may cover the source of another move.
        moved = {target: self.of_runs.pop(source) for source, target, _ in moves}
        for _, target, length in moves:
            self.begin(CacheExtent(target, length))
        self.of_runs |= moved


class OwnRunner:
    """A `Runner` for a model whose caches are its own. With `together`, rows with the same
    positions are computed at once; with `at_once`, all tokens that come after a state. Raises
    NotSupportedError for a model without any cache."""

    specialised = False

    def __init__(
        self, model: Any, tokens: int, together: bool = True, at_once: bool = True
    ) -> None:
        del tokens  # its caches grow as they need
        self.model, self.together, self.at_once = model, together, at_once
        self.cache = OwnCaches()
        self._modules = list(model.modules())
        parameters = inspect.signature(model.forward).parameters
        name = cache_name(model)
        if name is None:
            raise NotSupportedError(f"{type(model).__name__} has no cache to sample with")
        self._name = name
        self._options: dict[str, Any] = {"use_cache": True}
        if "logits_to_keep" in parameters:
            self._options["logits_to_keep"] = 1  # those of the last token

    def refresh(self) -> None:
        """Nothing to do: it is the model itself that runs."""

    def empty_cache(self, tokens: int) -> OwnCaches:
        return OwnCaches()

    @torch.inference_mode()
    def forward(
        self,
        runs: Sequence[CacheExtent],
        ids: NDArray[np.int64],
        positions: NDArray[np.int64],
        cache: OwnCaches | None = None,
    ) -> torch.Tensor:
        """See `Runner.forward`; positions are those that the model counts by itself."""
        caches = self.cache if cache is None else cache
        logits: list[torch.Tensor | None] = [None] * len(runs)
        with evaluating(self._modules):
            for rows in self._rows(positions):
                # Rows that go together have the same positions: the first stands for all.
                known = positions[rows[0]] != PADDING
                inputs = torch.from_numpy(ids[rows][:, known]).to(self.model.device)
                first = int(positions[rows[0], known][0])
                own = [runs[row] for row in rows]
                # After a state some models take one token a call; a new text goes in whole.
                size = 1 if first and not self.at_once else inputs.shape[1]
                pieces = torch.split(inputs, size, 1)
                for place, piece in enumerate(pieces):
                    found = self._advance(caches, own, piece, first + place)
                for row, each in zip(rows, found, strict=True):
                    logits[row] = each
        return torch.stack([row for row in logits if row is not None]).float()

    def _rows(self, positions: NDArray[np.int64]) -> list[list[int]]:
        return _alike(positions) if self.together else [[row] for row in range(len(positions))]

    def _advance(
        self, caches: OwnCaches, runs: Sequence[CacheExtent], inputs: torch.Tensor, first: int
    ) -> torch.Tensor:
        """[n, vocabulary], of int64[n, inputs] that come after `first` tokens."""
        before = None
        if first:
            before = joined([_remembered(caches, run, first) for run in runs])
        output = self.model(input_ids=inputs, **{self._name: before}, **self._options)
        after = cache_of(output)
        if after is None:
            raise NotSupportedError(f"{type(self.model).__name__} gives no cache to go on from")
        length = first + inputs.shape[1]
        for run, cache in zip(runs, parted(after, len(runs)), strict=True):
            # A run that begins anew may cover places where other histories began.
            if not first:
                caches.begin(run)
            caches.of_runs[run.start] = Remembered(cache, length)
        logits: torch.Tensor = output.logits[:, -1]
        return logits


def _remembered(caches: OwnCaches, run: CacheExtent, length: int) -> Any:
    found = caches.of_runs.get(run.start)
    if found is None or found.length != length:
        raise RuntimeError(f"no state after {length} tokens is there to go on from")
    return found.cache


def _alike(positions: NDArray[np.int64]) -> list[list[int]]:
    rows: dict[bytes, list[int]] = {}
    for row, places in enumerate(positions):
        rows.setdefault(places.tobytes(), []).append(row)
    return list(rows.values())


def joined(caches: Sequence[Any]) -> Any:
    """One cache of n rows out of n caches of one row each."""
    return caches[0] if len(caches) == 1 else _merged(caches, lambda rows: torch.cat(list(rows)))


def parted(cache: Any, rows: int) -> list[Any]:
    if rows == 1:
        return [cache]
    return [_merged([cache], partial(_row, row=row)) for row in range(rows)]


def _row(whole: Sequence[torch.Tensor], row: int) -> torch.Tensor:
    return whole[0][row : row + 1]


def _merged(parts: Sequence[Any], merge: Callable[[Sequence[torch.Tensor]], torch.Tensor]) -> Any:
    """Merge objects of one structure, by what `merge` makes of their tensors that have rows."""
    first = parts[0]
    if isinstance(first, torch.Tensor):
        # Counters, and tensors that are not filled yet, have no rows.
        return merge(list(parts)) if first.ndim and first.numel() else first
    if isinstance(first, dict):
        return {name: _merged([part[name] for part in parts], merge) for name in first}
    if isinstance(first, list | tuple):
        return type(first)(_merged(several, merge) for several in zip(*parts, strict=True))
    # Only transformers' own objects are taken apart: all else is the same for every row.
    if not type(first).__module__.startswith("transformers.") or isinstance(first, type):
        return first
    # A copy, and not a new object: the arguments of its constructor are not known any more.
    whole = copy.copy(first)
    vars(whole).update(_merged([vars(part) for part in parts], merge))
    return whole
