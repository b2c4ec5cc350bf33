"""The recorded times of one step, as columns.

Not here: the file (`storage/timeline.py`), and what follows from it (`timeline.py`, `waits.py`).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from turnwise.storage.timeline import EPISODE, LEARNER


@dataclass(frozen=True)
class Rows:
    """The rows of one step, a hundred thousand in the time of a few."""

    step: int
    process: list[Any]
    kind: list[Any]
    group: list[Any]
    episode: list[int | None]
    start: list[float]
    end: list[float]
    owner: NDArray[np.int64]
    """The number of the episode that each row is of, from 0; phases of the learner share one."""
    phases: list[int]
    """The places of the learner's phases."""
    episodes: list[int]
    """The places of whole episodes."""
    parts: list[int]
    """The places of parts of episodes."""

    @classmethod
    def of(cls, step: int, table: pa.Table) -> "Rows":
        """The rows of a file's table."""
        start = table["start"].to_numpy()
        end = start + table["seconds"].to_numpy()
        process, kind, group = (_texts(table[name]) for name in ("process", "kind", "group"))
        numbers = np.nan_to_num(table["episode"].to_numpy(), nan=-1).astype(np.int64)
        learner, whole = _equal(table["process"], LEARNER), _equal(table["kind"], EPISODE)
        return cls(
            step,
            process,
            kind,
            group,
            [None if one < 0 else one for one in numbers.tolist()],
            start.tolist(),
            end.tolist(),
            _owners(table["group"], numbers),
            np.flatnonzero(learner).tolist(),
            np.flatnonzero(whole).tolist(),
            np.flatnonzero(~learner & ~whole).tolist(),
        )


def _codes(column: pa.ChunkedArray) -> tuple[list[str], NDArray[np.int64]]:
    """The texts of a dictionary's column, and the place of each row's among them, -1 for none."""
    if not len(column):
        return [], np.zeros(0, np.int64)
    encoded = column.combine_chunks()
    return encoded.dictionary.to_pylist(), encoded.indices.fill_null(-1).to_numpy().astype(np.int64)


def _texts(column: pa.ChunkedArray) -> list[Any]:
    """The text of each row, None where there is none."""
    texts, codes = _codes(column)
    return list(np.array([*texts, None], object)[codes])


def _equal(column: pa.ChunkedArray, text: str) -> NDArray[np.bool_]:
    texts, codes = _codes(column)
    return np.asarray(codes == (texts.index(text) if text in texts else len(texts)), np.bool_)


def _owners(groups: pa.ChunkedArray, episodes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Numbers that are equal for rows of one group and episode alone."""
    codes = _codes(groups)[1]
    pairs = (codes + 1) * (episodes.max(initial=0) + 2) + episodes + 1
    return np.asarray(np.unique(pairs, return_inverse=True)[1], np.int64)
