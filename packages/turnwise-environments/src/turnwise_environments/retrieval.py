"""Search by the vectors of an embedding, alone or together with words.

A name with a colon is a function, `path/to/file.py:embed` or `package.module:embed`, from a list of
texts to an array; any other is a model's folder or name, which needs the extra `dense`. Embeddings
of documents are kept in the cache, because a model takes minutes for many. Ranking is exact, all
vectors are in memory.
"""

import hashlib
import io
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from turnwise.environments.search.corpus import Document
from turnwise.environments.search.environment import Index, Retrieval
from turnwise.errors import ConfigError, DataError, first_line
from turnwise.folders import cache_folder, write_whole
from turnwise.registry import load_function
from turnwise.tools.bm25 import BM25Index
from turnwise_environments.common import check_installed

Embed = Callable[[Sequence[str]], np.ndarray]
"""n texts -> float[n, d], n and d above 0."""

FUSION_CONSTANT, FUSION_DEPTH = 60, 100
"""Cormack's constant, and how many places of each ranking count."""


class DenseIndex:
    """Example: DenseIndex(embed(["a cat", "a car"]), embed).search("kitten", k=1) == [0]"""

    def __init__(self, vectors: np.ndarray, embed: Embed) -> None:
        """`vectors` is float[n, d], one for each text; `embed` is for queries, with the same d.
        Raises DataError for arrays of another shape, and for numbers that are not finite."""
        self._vectors = _unit(vectors)
        self._embed = embed

    def search(self, query: str, k: int) -> list[int]:
        """Positions of the `k` texts with the highest cosine, best first; equal ones in order."""
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
        return sorted(scores, key=lambda position: (-scores[position], position))[:k]


def _unit(vectors: np.ndarray) -> np.ndarray:
    """Vectors scaled to length 1, float32."""
    found = np.asarray(vectors, np.float32)
    if found.ndim != 2 or not found.size:
        raise DataError(f"embeddings have the shape {found.shape}: it has to be (texts, numbers)")
    lengths = np.linalg.norm(found, axis=1, keepdims=True)
    if not np.isfinite(lengths).all():
        raise DataError("an embedding has a number that is not finite")
    # A text without a word that is known may be all zeros: it is near to nothing.
    unit: np.ndarray = found / np.maximum(lengths, 1e-12)
    return unit


PROBE = "the same text, to know an embedding by"


@dataclass(frozen=True)
class Embedder:
    """Documents and queries may be embedded in different ways, as models with prompts do."""

    name: str
    documents: Embed
    queries: Embed


def make_index(
    documents: Sequence[Document], words: BM25Index, retrieval: Retrieval, embedding: str
) -> Index:
    embedder = make_embedder(embedding)
    texts = [" ".join(f"{document.card} {document.text}".split()) for document in documents]
    dense = DenseIndex(embedded(texts, embedder), embedder.queries)
    return dense if retrieval == "dense" else FusedIndex([words, dense])


def make_embedder(name: str) -> Embedder:
    """Raises ConfigError for one that is not there, MissingExtraError without the package."""
    if ":" in name:
        found = load_function(name, "search: embedding")
        return Embedder(name, found, found)
    check_installed("sentence-transformers", "dense")
    from sentence_transformers import SentenceTransformer

    try:
        model = SentenceTransformer(name)
    except (OSError, ValueError) as error:
        reason = first_line(error)
        raise ConfigError(f"search: embedding {name!r} cannot be loaded: {reason}") from None
    return Embedder(
        name,
        lambda texts: np.asarray(model.encode_document(list(texts), show_progress_bar=False)),
        lambda texts: np.asarray(model.encode_query(list(texts), show_progress_bar=False)),
    )


def embedded(texts: Sequence[str], embedder: Embedder) -> np.ndarray:
    """float[n, d], from the cache where this embedder gave them before for these texts; it is known
    by its name and by what it makes of one fixed text. Raises DataError for an array of another
    length."""
    digest = hashlib.sha256(embedder.name.encode())
    digest.update(np.asarray(embedder.documents([PROBE]), np.float32).tobytes())
    for text in texts:
        digest.update(text.encode() + b"\0")
    path = cache_folder() / f"embeddings-{digest.hexdigest()[:16]}.npy"
    found = _read(path, len(texts))
    if found is None:
        found = np.asarray(embedder.documents(texts), np.float32)
        if found.ndim != 2 or len(found) != len(texts):
            raise DataError(
                f"embedding {embedder.name}: {len(texts)} texts gave an array of the shape "
                f"{found.shape}"
            )
        content = io.BytesIO()
        np.save(content, found, allow_pickle=False)
        with suppress(OSError):  # a read-only home: slower, not broken
            write_whole(path, content.getvalue())
    return found


def _read(path: Path, count: int) -> np.ndarray | None:
    try:
        found: np.ndarray = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    return found if found.ndim == 2 and len(found) == count else None
