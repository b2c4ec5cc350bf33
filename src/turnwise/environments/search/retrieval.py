"""How documents are ranked: by their words, or as the wing has it that makes an embedding's index.

Not here: the ranking by words (`tools/bm25.py`).
"""

from collections.abc import Sequence
from typing import Literal, Protocol

from turnwise.environments.search.corpus import Document
from turnwise.errors import ConfigError
from turnwise.tools.bm25 import BM25Index
from turnwise.wings import wings

Retrieval = Literal["bm25", "dense", "hybrid"]


class Index(Protocol):
    """The interface of what ranks a fixed list of texts."""

    def search(self, query: str, k: int) -> list[int]:
        """Positions of the best `k` texts or fewer, best first."""


def make_index(
    documents: Sequence[Document], words: BM25Index, retrieval: Retrieval, embedding: str
) -> Index:
    """The index that is searched; `words` is the one over the same documents. Raises
    MissingExtraError where an embedding's wing is not installed."""
    if retrieval == "bm25":
        return words
    found: Index = wings().part("index", "embedding")(documents, words, retrieval, embedding)
    return found


def check_retrieval(retrieval: Retrieval, embedding: str) -> None:
    """Raises ConfigError where one of the two is missing or has no use."""
    if retrieval != "bm25" and not embedding:
        raise ConfigError(
            f"search: retrieval {retrieval} needs an embedding: a model of sentence-transformers, "
            "or a function as file.py:embed"
        )
    if retrieval == "bm25" and embedding:
        raise ConfigError("search: embedding is for retrieval dense or hybrid: set it, too")
