"""The memory stream of one agent: all that it observed, and its reflections, in order.

What is recalled are the memories with the highest sum of recency, importance and relevance. The
first decays with the hours since a memory was last recalled, the second is given with it, the third
is BM25 in place of the paper's embeddings; each is scaled to [0, 1] over the stream. Source: Park
et al. 2023 (arXiv 2304.03442, section 4). Not here: who rates a memory, and who writes a reflection.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from turnwise.tools.bm25 import BM25Index

DECAY = 0.995
"""The share of recency that is left after an hour, as published."""


@dataclass(frozen=True)
class Weights:
    """What each part counts in a memory's score. Example: Weights(recency=0.0)."""

    recency: float = 1.0
    importance: float = 1.0
    relevance: float = 1.0


class MemoryStream:
    """Memories in the order in which they were made. Hours count from any moment."""

    def __init__(self, weights: Weights = Weights()) -> None:
        self._weights = weights
        self._texts: list[str] = []
        self._importance: list[float] = []
        self._recalled: list[int] = []
        self._reflected = 0

    @property
    def since_reflection(self) -> Sequence[str]:
        """What was observed since the last reflection."""
        return self._texts[self._reflected :]

    @property
    def burden(self) -> float:
        """The sum of the importance of that: where it is high, it is time to reflect."""
        return sum(self._importance[self._reflected :])

    def observe(self, text: str, importance: float, hour: int) -> None:
        self._texts.append(text)
        self._importance.append(importance)
        self._recalled.append(hour)

    def reflect(self, text: str, importance: float, hour: int) -> None:
        """Keep a statement on what was observed until now."""
        self.observe(text, importance, hour)
        self._reflected = len(self._texts)

    def recall(self, query: str, count: int, hour: int) -> list[str]:
        """The `count` memories with the highest scores, or fewer, in the order in which they were
        made; of equal ones the earlier."""
        if not self._texts or not count:
            return []
        best = np.sort(np.argsort(-self._scores(query, hour), kind="stable")[:count])
        for place in best:
            self._recalled[place] = hour
        return [self._texts[place] for place in best]

    def _scores(self, query: str, hour: int) -> NDArray[np.float64]:
        recency = DECAY ** (hour - np.array(self._recalled))
        relevance = BM25Index(self._texts, [""] * len(self._texts)).scores(query)
        return (
            self._weights.recency * _scaled(recency)
            + self._weights.importance * _scaled(self._importance)
            + self._weights.relevance * _scaled(relevance)
        )


def _scaled(numbers: ArrayLike) -> NDArray[np.float64]:
    """To [0, 1]; 0 where all are equal."""
    found = np.asarray(numbers, np.float64)
    return (found - found.min()) / (np.ptp(found) or 1.0)
