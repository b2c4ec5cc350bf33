"""The recorded times of one step, as columns.

Not here: the file (`storage/timeline.py`), and what follows from it (`timeline.py`, `waits.py`).
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from turnwise.storage.timeline import EPISODE, LEARNER


@dataclass(frozen=True)
class Rows:
    """The rows of one step as arrays."""

    step: int
    process: list[str]
    kind: list[str]
    group: list[str | None]
    episode: list[int | None]
    start: NDArray[np.float64]
    end: NDArray[np.float64]

    @classmethod
    def of(cls, step: int, table: pa.Table) -> "Rows":
        """The rows of a file's table."""
        start = table["start"].to_numpy()
        names = ("process", "kind", "group", "episode")
        process, kind, group, episode = (table[name].to_pylist() for name in names)
        end = start + table["seconds"].to_numpy()
        return cls(step, process, kind, group, episode, start, end)

    def places(self, *, learner: bool) -> list[int]:
        """The places of the learner's phases, or of whole episodes."""
        wanted = [
            process == LEARNER if learner else kind == EPISODE
            for process, kind in zip(self.process, self.kind, strict=True)
        ]
        return np.flatnonzero(wanted).tolist()
