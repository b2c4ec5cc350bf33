"""BM25 search over short texts: the ranking behind a search tool.

Identifiers stay whole. `tarfile.TarFile` is one word beside its parts, and `get_ident` is one word,
so that a program's names can be searched for as they are written. It has neither a stemmer nor a
list of stop words.
"""

import re
from collections.abc import Sequence

import bm25s
import numpy as np
from numpy.typing import NDArray

from turnwise.errors import DataError

NAME_WEIGHT = 8
"""Times that a text's own name is counted, so that a search for a name finds its bearer first."""

_WORD = re.compile(r"\w+(?:\.\w+)*")


def words(text: str) -> list[str]:
    """The index's words, lower-cased; a dotted name gives itself and then its parts.

    >>> words("Class TarFile. Module: os.path.")
    ['class', 'tarfile', 'module', 'os.path', 'os', 'path']
    """
    found: list[str] = []
    for word in _WORD.findall(text.lower()):
        found.append(word)
        if "." in word:
            found.extend(word.split("."))
    return found


class BM25Index:
    """A fixed list of texts, ranked for a query.

    Example: BM25Index(["Class TarFile.", "Class ZipFile."], ["TarFile", "ZipFile"])
        .search("zipfile", k=1) == [1]
    """

    def __init__(self, texts: Sequence[str], names: Sequence[str], *, b: float = 0.3) -> None:
        """Index `texts[i]`, whose own name is `names[i]`; the two are of one length. `b` is how
        much long texts are marked down (0 not at all, 1 fully). Raises DataError when there is not
        one word in all the texts."""
        vocabulary: dict[str, int] = {}
        documents = [
            [vocabulary.setdefault(one, len(vocabulary)) for one in words(text) + _own_words(name)]
            for text, name in zip(texts, names, strict=True)
        ]
        if not vocabulary:
            raise DataError("the documents to search are empty: there is not one word in them")
        self._vocabulary, self._count = vocabulary, len(documents)
        self._ranking = bm25s.BM25(b=b, backend="numpy", csc_backend="numpy")
        self._ranking.index(
            (documents, dict(vocabulary)), create_empty_token=False, show_progress=False
        )

    def scores(self, query: str) -> NDArray[np.float32]:
        """The score of each text for a query; 0 for one without any of its words."""
        # Each word once: a query gains nothing by repeating one.
        asked = dict.fromkeys([*words(query), *_exact(query)])
        known = [self._vocabulary[word] for word in asked if word in self._vocabulary]
        if not known:
            return np.zeros(self._count, np.float32)
        return np.asarray(self._ranking.get_scores_from_ids(known), np.float32)

    def search(self, query: str, k: int) -> list[int]:
        """Positions of the best `k` texts or fewer, best first; equal scores in order of position.
        A text without any of the query's words is left out; words that no text has are ignored."""
        if k < 1:
            return []
        scores = self.scores(query)
        candidates = np.flatnonzero(scores)
        order = np.argsort(-scores[candidates], kind="stable")[:k]
        return [int(position) for position in candidates[order]]


def _own_words(name: str) -> list[str]:
    """The whole and the last part of a dotted name: `os.path` is called path, not os."""
    whole = _WORD.findall(name.lower())
    last = [word.rpartition(".")[2] for word in whole if "." in word]
    return (whole + last) * NAME_WEIGHT + _exact(name)


def _exact(name: str) -> list[str]:
    """Words as they are spelled, marked as such, so that TarFile comes before tarfile."""
    return [f"={word}" for word in _WORD.findall(name)]
