"""Dense and hybrid search: texts ranked by vectors, and several rankings fused into one.

`DenseIndex` ranks by the cosine of embeddings; what embeds is any function from texts to vectors.
`FusedIndex` is reciprocal rank fusion (Cormack et al., SIGIR 2009). Both are searched as a
`BM25Index` is. Exact, all vectors in memory. Not here: which model embeds, and where embeddings are
kept (`embedding.py`).
"""

from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np

from turnwise.environments.search.retrieval import Index
from turnwise.errors import DataError

Embed = Callable[[Sequence[str]], np.ndarray]
"""n texts -> float[n, d], n and d above 0."""

FUSION_CONSTANT, FUSION_DEPTH = 60, 100
"""Cormack's constant, and how many places of each ranking count."""


class DenseIndex:
    """Example: DenseIndex(embed(["a cat", "a car"]), embed).search("kitten", k=1) == [0]"""

    def __init__(self, vectors: np.ndarray, embed: Embed) -> None:
        """`vectors` is float[n, d], one for each text; `embed` is for queries, with the same d.

        Raises DataError for arrays of another shape, and for vectors of length 0 or not finite.
        """
        self._vectors = _unit(vectors)
        self._embed = embed

    def search(self, query: str, k: int) -> list[int]:
        """Positions of the `k` texts with the highest cosine, best first; equal ones in order of
        position. Every text has a cosine, so there are always results."""
        if k < 1:
            return []
        asked = _unit(self._embed([query]))
        if asked.shape != (1, self._vectors.shape[1]):
            raise DataError(
                f"a query's embedding has the shape {asked.shape}, and those of texts have "
                f"{self._vectors.shape[1]} numbers"
            )
        order = np.argsort(-(self._vectors @ asked[0]), kind="stable")[:k]
        return [int(position) for position in order]


class FusedIndex:
    """Example: FusedIndex([BM25Index(texts, names), DenseIndex(vectors, embed)])"""

    def __init__(self, indexes: Sequence[Index]) -> None:
        """All over the same texts."""
        self._indexes = indexes

    def search(self, query: str, k: int) -> list[int]:
        """Rank texts by the sum of 1 / (60 + place) over all rankings in which a text is among the
        first 100; equal sums in order of position."""
        scores: dict[int, float] = defaultdict(float)
        for index in self._indexes:
            for place, position in enumerate(index.search(query, max(k, FUSION_DEPTH)), start=1):
                scores[position] += 1.0 / (FUSION_CONSTANT + place)
        return sorted(scores, key=lambda position: (-scores[position], position))[: max(k, 0)]


def _unit(vectors: np.ndarray) -> np.ndarray:
    """Vectors scaled to length 1, float32."""
    found = np.asarray(vectors, np.float32)
    if found.ndim != 2 or not found.size:
        raise DataError(f"embeddings have the shape {found.shape}: it has to be (texts, numbers)")
    lengths = np.linalg.norm(found, axis=1, keepdims=True)
    if not np.isfinite(lengths).all():
        raise DataError("an embedding has a number that is not finite")
    unit: np.ndarray = found / np.maximum(lengths, 1e-12)
    return unit
