"""The memory stream of one agent: all that it observed, and its reflections, in order.

What is recalled are the memories with the highest sum of recency, importance and relevance. The
first decays with the hours since a memory was last recalled, the second is given with it, the third
is BM25 in place of the paper's embeddings; each is scaled to [0, 1] over the stream. Source: Park
et al. 2023 (arXiv 2304.03442, section 4). Not here: how important a memory is, and who reflects.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from turnwise.tools.bm25 import BM25Index

DECAY = 0.995
"""The share of recency that is left after an hour, as published."""


class MemoryStream:
    """Memories in the order in which they were made. Hours count from any moment."""

    def __init__(self, recency: float = 1.0, importance: float = 1.0, relevance: float = 1.0):
        """The weights of the parts of a score, as published."""
        self._weights = recency, importance, relevance
        self._texts, self._importance, self._used = list[str](), list[float](), list[int]()
        self._reflected = 0

    @property
    def since_reflection(self) -> list[str]:
        """All that was observed since the last reflection."""
        return self._texts[self._reflected :]

    @property
    def burden(self) -> float:
        """The sum of the importance of that: where it is high, it is time to reflect."""
        return sum(self._importance[self._reflected :])

    def observe(self, text: str, importance: float, hour: int) -> None:
        self._texts.append(text)
        self._importance.append(importance)
        self._used.append(hour)

    def reflect(self, text: str, importance: float, hour: int) -> None:
        """Keep a statement on what was observed until now."""
        self.observe(text, importance, hour)
        self._reflected = len(self._texts)

    def recall(self, query: str, count: int, hour: int) -> list[str]:
        """The `count` memories with the highest scores, or fewer, in the order in which they were
        made."""
        if not self._texts or not count:
            return []
        best = np.sort(np.argsort(-self._scores(query, hour), kind="stable")[:count])
        for place in best:
            self._used[place] = hour
        return [self._texts[place] for place in best]

    def _scores(self, query: str, hour: int) -> NDArray[np.float64]:
        recency = DECAY ** (hour - np.array(self._used))
        relevance = BM25Index(self._texts, [""] * len(self._texts)).scores(query)
        parts = [_scaled(part) for part in (recency, self._importance, relevance)]
        return np.asarray(np.dot(self._weights, parts))


def _scaled(numbers: ArrayLike) -> NDArray[np.float64]:
    """To [0, 1]; 0 where all are equal."""
    found = np.asarray(numbers, np.float64)
    return np.asarray((found - found.min()) / (np.ptp(found) or 1.0))
