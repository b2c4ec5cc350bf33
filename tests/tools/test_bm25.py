"""Ranking: names first, ties by position, the scores of the formula."""

import math
import time

import pytest

from turnwise.errors import DataError
from turnwise.tools.bm25 import BM25Index, words

NAMES = ["TarFile", "extractall", "addfile", "tarfile"]
TEXTS = [
    "Class TarFile. Module: tarfile. An interface to tar archives with a long description of it.",
    "Method extractall. Class: TarFile.",
    "Method addfile. Class: TarFile.",
    "Module tarfile. Package: none.",
]


def test_words_keep_identifiers_whole():
    assert words("os.path get_ident TarFile! état 1.95") == [
        *("os.path", "os", "path", "get_ident", "tarfile", "état", "1.95", "1", "95")
    ]


def test_a_name_finds_its_own_text_first():
    index = BM25Index(TEXTS, NAMES)
    assert index.search("TarFile", 4)[0] == 0
    assert index.search("tarfile", 4)[0] == 3
    assert index.search("EXTRACTALL", 1) == [1]
    dotted = ["a.command.build", "b", "Command"]  # by their last part too
    index = BM25Index(["Module a.command.build.", "Module b.", "Class Command."], dotted)
    assert index.search("command", 3)[0] == 2
    assert index.search("build", 3) == [0]
    assert index.search("a.command.build", 3)[0] == 0
    names = ["path.os", "os.path"]
    assert BM25Index([f"{name} here" for name in names], names).search("path", 1) == [1]


def test_only_texts_with_a_word_of_the_query_are_results():
    index = BM25Index(TEXTS, NAMES)
    assert index.search("extractall", 4) == [1]
    assert index.search("unheard of", 4) == [0]
    assert [score > 0 for score in index.scores("unheard of")] == [True, False, False, False]
    assert not index.scores("nowhere").any()
    assert index.search("nowhere", 4) == []
    assert index.search("", 4) == []
    assert index.search("TarFile", 0) == []
    assert len(index.search("TarFile", 99)) == 4


def test_the_ranking_is_that_of_the_formula():
    texts = ["a b b c", "b c d", "c c c a", "d e f g h", "b"]
    index = BM25Index(texts, [""] * len(texts), b=0.3)
    tokens = [text.split() for text in texts]
    average = sum(map(len, tokens)) / len(tokens)

    def score(document: list[str], query: str) -> float:
        total = 0.0
        for word in query.split():
            having = sum(word in other for other in tokens)
            weight = math.log(1 + (len(tokens) - having + 0.5) / (having + 0.5))
            count = document.count(word)
            total += weight * count / (count + 1.5 * (0.7 + 0.3 * len(document) / average))
        return total

    same = BM25Index(["same words"] * 50, [""] * 50)
    assert same.search("words", 5) == [0, 1, 2, 3, 4], "of equal scores the first texts"
    for query in ("b", "c", "a b", "d g c", "b a e"):
        scores = [score(document, query) for document in tokens]
        expected = sorted((i for i, s in enumerate(scores) if s > 0), key=lambda i: -scores[i])
        assert index.search(query, 5) == expected


def test_empty_texts_are_an_error():
    with pytest.raises(DataError, match="empty"):
        BM25Index(["", "..."], ["", ""])


def test_a_query_over_ten_thousand_texts_takes_milliseconds_at_most():
    texts = [f"the word{number} of word{number % 97}" for number in range(12_000)]
    index = BM25Index(texts, [f"word{number}" for number in range(12_000)])
    start = time.process_time()
    for number in range(200):
        assert index.search(f"word{number + 100}", 3)[0] == number + 100
    assert (time.process_time() - start) / 200 < 0.005
