"""Checkpoints of a learner on several processes, written while it goes on learning.

Each rank first copies what it will write: its parts of the optimizer's moments, and some of the
weights, whole. Then a thread in each writes its copies, and they tell each other how it went, in a
group of their own. Not here: the form of a checkpoint, and when it counts (`turnwise.storage`).
"""

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch.distributed as dist
from safetensors import SafetensorError
from torch import Tensor, nn

from turnwise.errors import InfrastructureError
from turnwise.storage import tensors
from turnwise.storage.checkpoint import TENSORS, checksum
from turnwise_cluster.learners.model_files import ModelFiles
from turnwise_cluster.learners.process_group import ProcessGroup


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
        dist.barrier(self._group)
        problem, own = "", []
        try:
            own = self._model.write(folder, self._gathered)
        except (OSError, SafetensorError) as error:
            problem = str(error)
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
