"""The recorded times of one step, as columns."""

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
    """The number of the episode in a process that each row is of, from 0; phases of the learner
    share one."""
    phases: list[int]
    episodes: list[int]
    parts: list[int]

    @classmethod
    def of(cls, step: int, table: pa.Table) -> "Rows":
        start = table["start"].to_numpy()
        end = start + table["seconds"].to_numpy()
        process, kind, group = (_Texts.of(table[name]) for name in ("process", "kind", "group"))
        numbers = np.nan_to_num(table["episode"].to_numpy(), nan=-1).astype(np.int64)
        learner, whole = process.equal(LEARNER), kind.equal(EPISODE)
        return cls(
            step,
            process.whole,
            kind.whole,
            group.whole,
            [None if one < 0 else one for one in numbers.tolist()],
            start.tolist(),
            end.tolist(),
            _owners(process.codes, group.codes, numbers),
            np.flatnonzero(learner).tolist(),
            np.flatnonzero(whole).tolist(),
            np.flatnonzero(~learner & ~whole).tolist(),
        )


@dataclass(frozen=True)
class _Texts:
    texts: list[str]
    codes: NDArray[np.int64]
    """The place of each row's text among them, -1 for none."""

    @classmethod
    def of(cls, column: pa.ChunkedArray) -> "_Texts":
        if not len(column):
            return cls([], np.zeros(0, np.int64))
        encoded = column.combine_chunks()
        codes = encoded.indices.fill_null(-1).to_numpy().astype(np.int64)
        return cls(encoded.dictionary.to_pylist(), codes)

    @property
    def whole(self) -> list[Any]:
        return list(np.array([*self.texts, None], object)[self.codes])

    def equal(self, text: str) -> NDArray[np.bool_]:
        place = self.texts.index(text) if text in self.texts else len(self.texts)
        return np.asarray(self.codes == place, np.bool_)


def _owners(*columns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Numbers that are equal for rows alone of which all columns, from -1 on, are equal."""
    numbers = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        numbers = numbers * (column.max(initial=0) + 2) + column + 1
    return np.asarray(np.unique(numbers, return_inverse=True)[1], np.int64)
