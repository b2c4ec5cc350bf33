"""Embedders of documents and queries: a model of sentence-transformers, or a function of one's own.

A name with a colon is a function, `path/to/file.py:embed` or `package.module:embed`, from a list of
texts to an array; any other is a model's folder or name, which needs the extra `dense`. Embeddings
of documents are kept in the cache, because a model takes minutes for many. Not here:
ranking (`dense.py`).
"""

import hashlib
import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from turnwise.environments.search.corpus import Document
from turnwise.environments.search.retrieval import Index, Retrieval
from turnwise.errors import ConfigError, DataError, MissingExtraError
from turnwise.folders import cache_folder
from turnwise.registry import load_module
from turnwise.tools.bm25 import BM25Index
from turnwise_environments.retrieval.dense import DenseIndex, Embed, FusedIndex

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
    """The index that is searched; `words` is the one over the same documents, with which `hybrid`
    fuses the embedding's."""
    embedder = make_embedder(embedding)
    texts = [" ".join(f"{document.card} {document.text}".split()) for document in documents]
    dense = DenseIndex(embedded(texts, embedder), embedder.queries)
    return dense if retrieval == "dense" else FusedIndex([words, dense])


def make_embedder(name: str) -> Embedder:
    """A model or a function. Raises ConfigError for one that is not there, MissingExtraError for a
    model without the package."""
    place, colon, function = name.rpartition(":")
    if colon:
        found = getattr(load_module(place, "search: embedding"), function, None)
        if not callable(found):
            raise ConfigError(f"search: embedding: {place} has no function {function!r}")
        return Embedder(name, found, found)
    try:
        from sentence_transformers import SentenceTransformer
    except ModuleNotFoundError as error:
        if error.name != "sentence_transformers":
            raise
        raise MissingExtraError("sentence-transformers", "dense") from None
    try:
        model = SentenceTransformer(name)
    except (OSError, ValueError) as error:
        first = str(error).strip().partition("\n")[0]
        raise ConfigError(f"search: embedding {name!r} cannot be loaded: {first}") from None
    return Embedder(
        name,
        lambda texts: np.asarray(model.encode_document(list(texts), show_progress_bar=False)),
        lambda texts: np.asarray(model.encode_query(list(texts), show_progress_bar=False)),
    )


def embedded(texts: Sequence[str], embedder: Embedder) -> np.ndarray:
    """float[n, d], from the cache where this embedder gave them before for these texts.

    An embedder is known by its name and by what it makes of one fixed text, so a model that was
    trained further is another one. Raises DataError for an array of another length.
    """
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
        with suppress(OSError):  # a read-only home: slower, not broken
            _write(path, found)
    return found


def _read(path: Path, count: int) -> np.ndarray | None:
    try:
        found: np.ndarray = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    return found if found.ndim == 2 and len(found) == count else None


def _write(path: Path, vectors: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            np.save(file, vectors, allow_pickle=False)
        os.replace(temporary, path)
    finally:
        Path(temporary).unlink(missing_ok=True)
