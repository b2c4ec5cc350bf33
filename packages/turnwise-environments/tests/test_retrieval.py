"""Dense ranking by hand, ties, fusion against its formula; in the environment an embedding function
of the tests' own, and a real model of sentence-transformers with random weights."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from environment_playing import played
from tests.fakes import save_small_model
from turnwise.environments.base import Environment
from turnwise.environments.registry import make_environment
from turnwise.errors import ConfigError, DataError, UserError
from turnwise.types import Action, ToolCall
from turnwise_environments.choosing import all_tasks
from turnwise_environments.retrieval import (
    DenseIndex,
    Embedder,
    FusedIndex,
    embedded,
    make_embedder,
)


class Fixed:
    """A ranking that is always the same."""

    def __init__(self, *order: int) -> None:
        self.order = list(order)

    def search(self, query: str, k: int) -> list[int]:
        return self.order[:k]


QUERIES = {"east": [2.0, 0.0], "north": [0.0, 0.1], "between": [1.0, 1.0]}


@pytest.mark.parametrize(
    ("query", "k", "found"),
    [("east", 5, [0, 2, 1, 3, 4]), ("between", 1, [2]), ("north", 3, [1, 3, 2]), ("north", 0, [])],
)
def test_the_cosine_decides_and_then_the_position(query: str, k: int, found: list[int]) -> None:
    vectors = np.array([[5.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.0, 3.0], [0.0, 0.0]])
    index = DenseIndex(vectors, lambda texts: np.array([QUERIES[text] for text in texts]))
    assert index.search(query, k) == found


def test_fusion_by_its_formula() -> None:
    first, second = Fixed(3, 1, 2), Fixed(2, 3)
    scores = {3: 1 / 61 + 1 / 62, 2: 1 / 63 + 1 / 61, 1: 1 / 62}
    expected = sorted(scores, key=lambda position: -scores[position])
    assert FusedIndex([first, second]).search("q", 5) == expected == [3, 2, 1]
    assert FusedIndex([first, second]).search("q", 1) == [3]
    assert FusedIndex([Fixed(7), Fixed(4)]).search("q", 2) == [4, 7]
    assert FusedIndex([Fixed(), Fixed()]).search("q", 2) == []
    deeper = FusedIndex([Fixed(0, 1, 2, 9), Fixed(5, 6, 7, 9)])
    assert deeper.search("q", 1) == [9], "it looks deeper than it shows"


@pytest.mark.parametrize("vectors", [np.zeros((0, 2)), np.zeros(3), np.array([[np.nan, 1.0]])])
def test_vectors_that_are_none(vectors: np.ndarray) -> None:
    with pytest.raises(DataError, match="embedding"):
        DenseIndex(vectors, lambda texts: vectors)


def test_a_query_of_another_length() -> None:
    short = DenseIndex(np.ones((2, 3)), lambda texts: np.ones((1, 2)))
    with pytest.raises(DataError, match="texts have 3 numbers"):
        short.search("q", 1)


CALLS = """
import numpy as np

TOPICS = [("cat", "kitten", "purr"), ("car", "wheel", "engine"), ("rain", "cloud", "storm")]
calls = []

def embed(texts):
    calls.append(len(texts))
    return np.array([[sum(word in text.lower() for word in topic) for topic in TOPICS]
                     for text in texts], float)

def wrong(texts):
    return np.ones((1, 3))
"""
DOCUMENTS = [
    {"title": "Tom", "text": "A cat."},
    {"title": "Volvo", "text": "A car from Sweden."},
    {"title": "Cumulus", "text": "A cloud."},
    {"title": "Kitten", "text": "The word for a small storm, here."},
]


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setenv("TURNWISE_CACHE", str(tmp_path / "cache"))
    documents, questions = tmp_path / "documents.jsonl", tmp_path / "questions.jsonl"
    documents.write_text("\n".join(json.dumps(one) for one in DOCUMENTS))
    questions.write_text(json.dumps({"question": "Which one purrs?", "answer": "Tom"}))
    (tmp_path / "mine.py").write_text(CALLS)
    return {
        "tasks": {"file": str(questions), "documents": str(documents)},
        "embedding": f"{tmp_path}/mine.py:embed",
        "top_k": 2,
    }


def found(environment: Environment, query: str) -> list[str]:
    (task,) = all_tasks(environment)
    play = played(environment, task, Action("", calls=(ToolCall("search", {"query": query}),)))
    return [line.split()[1] for line in play.seen[1][0].splitlines() if line[:1] == "["]


def test_words_vectors_and_both(own: dict[str, Any]) -> None:
    words = make_environment("search", {**own, "embedding": ""})
    assert found(words, "kitten purr") == ["Kitten"]
    dense = make_environment("search", own | {"retrieval": "dense"})
    assert found(dense, "kitten purr")[0] == "Tom"
    hybrid = make_environment("search", own | {"retrieval": "hybrid"})
    assert set(found(hybrid, "kitten purr")) == {"Tom", "Kitten"}
    assert "oracle" not in dense.spec.reference_scores
    assert dense.restorable


def test_embeddings_are_kept(own: dict[str, Any]) -> None:
    embedder = make_embedder(own["embedding"])
    calls = embedder.documents.__globals__["calls"]
    texts = ["a cat", "a car"]
    first = embedded(texts, embedder)
    assert calls == [1, 2]
    assert (embedded(texts, embedder) == first).all()
    assert calls == [1, 2, 1], "the probe alone"
    changed = Embedder(embedder.name, lambda texts: embedder.documents(texts) + 1, np.array)
    assert (embedded(texts, changed) == first + 1).all()
    (file, *_) = Path(own["tasks"]["documents"]).with_name("cache").glob("embeddings-*.npy")
    file.write_bytes(b"damaged")
    assert (embedded(texts, embedder) == first).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"retrieval": "dense", "embedding": ""}, "retrieval dense needs an embedding"),
        ({"retrieval": "bm25"}, "embedding is for retrieval dense or hybrid"),
        ({"retrieval": "dense", "embedding": "none.py:embed"}, "none.py: there is no such file"),
        ({"retrieval": "dense", "embedding": "json:nothing"}, "json: unknown function 'nothing'"),
        ({"retrieval": "sparse"}, "option 'retrieval'"),
    ],
)
def test_options_that_make_no_sense(
    own: dict[str, Any], change: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        make_environment("search", own | change)


def test_an_array_of_another_length(own: dict[str, Any]) -> None:
    wrong = own["embedding"].replace(":embed", ":wrong")
    with pytest.raises(DataError, match="4 texts gave an array of the shape"):
        make_environment("search", own | {"retrieval": "dense", "embedding": wrong})


@pytest.mark.long
def test_a_model_of_sentence_transformers(own: dict[str, Any], tmp_path: Path) -> None:
    package = pytest.importorskip(
        "sentence_transformers",
        reason="sentence-transformers is not installed: pip install 'turnwise[dense]'",
    )
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    body = Transformer(str(save_small_model(tmp_path / "body")), max_seq_length=64)
    model = package.SentenceTransformer(modules=[body, Pooling(32)], device="cpu")
    model.save(str(tmp_path / "model"))
    options = own | {"embedding": str(tmp_path / "model"), "retrieval": "dense"}
    environment = make_environment("search", options)
    assert len(found(environment, "A cat.")) == 2
    assert found(environment, "Volvo A car from Sweden.")[0] == "Volvo", "its very words"
    again = make_environment("search", options | {"retrieval": "hybrid"})
    assert found(again, "Volvo")[0] == "Volvo"
    with pytest.raises(ConfigError, match="cannot be loaded"):
        make_environment("search", options | {"embedding": str(tmp_path / "nowhere")})
