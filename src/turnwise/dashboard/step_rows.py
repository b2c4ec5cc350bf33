"""The recorded times of one step, as columns.

Not here: the file (`storage/timeline.py`), and what follows from it (`timeline.py`, `waits.py`).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from turnwise.storage.timeline import EPISODE, LEARNER


@dataclass(frozen=True)
class Rows:
    """The rows of one step as arrays."""

    step: int
    process: list[Any]
    kind: list[Any]
    group: list[Any]
    episode: list[int | None]
    start: list[float]
    end: list[float]

    @classmethod
    def of(cls, step: int, table: pa.Table) -> "Rows":
        """The rows of a file's table."""
        start = table["start"].to_numpy()
        process, kind, group = (_texts(table[name]) for name in ("process", "kind", "group"))
        numbers = table["episode"].to_numpy().tolist()
        episode = [None if one != one else int(one) for one in numbers]
        end = start + table["seconds"].to_numpy()
        return cls(step, process, kind, group, episode, start.tolist(), end.tolist())

    def places(self, *, learner: bool) -> list[int]:
        """The places of the learner's phases, or of whole episodes."""
        wanted = [
            process == LEARNER if learner else kind == EPISODE
            for process, kind in zip(self.process, self.kind, strict=True)
        ]
        return np.flatnonzero(wanted).tolist()


def _texts(column: pa.ChunkedArray) -> list[Any]:
    """The texts of a dictionary's column, None where there is none; a hundred thousand in the time
    of a few."""
    if not len(column):
        return []
    encoded = column.combine_chunks()
    known = [*encoded.dictionary.to_pylist(), None]
    return [known[one] for one in encoded.indices.fill_null(-1).to_pylist()]
