"""The memory stream: what each part of a score brings to mind, and when it is time to reflect."""

import pytest

from turnwise_environments.tools.memory_stream import MemoryStream

RECENCY, IMPORTANCE, RELEVANCE = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)


def filled(*weights: float) -> MemoryStream:
    stream = MemoryStream(*weights)
    stream.observe("Ana has flu", 9.0, 0)
    stream.observe("rope in barn", 2.0, 10)
    stream.observe("Ben eats fig", 1.0, 20)
    return stream


@pytest.mark.parametrize(
    ("weights", "first"),
    [(RECENCY, "Ben eats fig"), (IMPORTANCE, "Ana has flu"), (RELEVANCE, "rope in barn")],
)
def test_each_part_brings_its_own_memory_to_mind(weights: tuple[float, ...], first: str) -> None:
    assert filled(*weights).recall("Where is rope?", 1, 30) == [first]


def test_parts_are_scaled_and_added_and_memories_come_in_the_order_of_making() -> None:
    # Recency 0, 0.50, 1; importance 1, 0.13, 0; relevance 0, 1, 0.
    stream = filled()
    assert stream.recall("Where is rope?", 1, 30) == ["rope in barn"]
    assert filled().recall("Who?", 2, 30) == ["Ana has flu", "Ben eats fig"]
    assert filled().recall("Who?", 9, 30) == ["Ana has flu", "rope in barn", "Ben eats fig"]
    assert filled().recall("Who?", 0, 30) == MemoryStream().recall("Who?", 2, 30) == []


def test_what_was_recalled_is_recent_again() -> None:
    stream = filled(*RECENCY)
    stream._weights = IMPORTANCE
    stream.recall("Who?", 1, 40)
    stream._weights = RECENCY
    assert stream.recall("Who?", 1, 50) == ["Ana has flu"]


def test_a_burden_grows_until_a_reflection() -> None:
    stream = filled()
    assert stream.burden == 12.0
    stream.reflect("Ben likes fig", 8.0, 21)
    assert (stream.burden, stream.since_reflection) == (0, [])
    stream.observe("drum in mill", 4.0, 22)
    assert (stream.burden, stream.since_reflection) == (4.0, ["drum in mill"])
    assert "Ben likes fig" in stream.recall("fig", 1, 23)
