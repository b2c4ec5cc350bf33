"""Dense ranking by hand, ties, fusion against its formula, and vectors that are none."""

import numpy as np
import pytest

from turnwise.errors import DataError
from turnwise_environments.retrieval import DenseIndex, FusedIndex


class Fixed:
    """A ranking that is always the same."""

    def __init__(self, *order: int) -> None:
        self.order = list(order)

    def search(self, query: str, k: int) -> list[int]:
        return self.order[:k]


QUERIES = {"east": [2.0, 0.0], "north": [0.0, 0.1], "between": [1.0, 1.0]}


def index() -> DenseIndex:
    vectors = np.array([[5.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.0, 3.0], [0.0, 0.0]])
    return DenseIndex(vectors, lambda texts: np.array([QUERIES[text] for text in texts]))


def test_the_cosine_decides_not_the_length() -> None:
    assert index().search("east", 5) == [0, 2, 1, 3, 4]
    assert index().search("between", 1) == [2]


def test_equal_ones_in_order_of_position() -> None:
    assert index().search("north", 3) == [1, 3, 2]
    assert index().search("north", 0) == []


def test_fusion_by_its_formula() -> None:
    first, second = Fixed(3, 1, 2), Fixed(2, 3)
    scores = {3: 1 / 61 + 1 / 62, 2: 1 / 63 + 1 / 61, 1: 1 / 62}
    expected = sorted(scores, key=lambda position: -scores[position])
    assert FusedIndex([first, second]).search("q", 5) == expected == [3, 2, 1]
    assert FusedIndex([first, second]).search("q", 1) == [3]
    assert FusedIndex([Fixed(7), Fixed(4)]).search("q", 2) == [4, 7]
    assert FusedIndex([Fixed(), Fixed()]).search("q", 2) == []


def test_fusion_looks_deeper_than_it_shows() -> None:
    one, two = Fixed(0, 1, 2, 9), Fixed(5, 6, 7, 9)
    assert FusedIndex([one, two]).search("q", 1) == [9]


@pytest.mark.parametrize("vectors", [np.zeros((0, 2)), np.zeros(3), np.array([[np.nan, 1.0]])])
def test_vectors_that_are_none(vectors: np.ndarray) -> None:
    with pytest.raises(DataError, match="embedding"):
        DenseIndex(vectors, lambda texts: vectors)


def test_a_query_of_another_length() -> None:
    short = DenseIndex(np.ones((2, 3)), lambda texts: np.ones((1, 2)))
    with pytest.raises(DataError, match="texts have 3 numbers"):
        short.search("q", 1)
