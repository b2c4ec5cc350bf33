"""WebShop's formula against values worked out by hand."""

from dataclasses import replace

import pytest

from turnwise_environments.rewards.shopping import (
    NOTHING_BOUGHT,
    Bought,
    Wanted,
    is_as_wanted,
    share_as_wanted,
    token_set_ratio,
    type_score,
    webshop_reward,
)

WANTED = Wanted(
    query="rain jacket",
    category=("clothing", "outdoor", "rain jacket"),
    nouns=frozenset({"lumo", "rain", "jacket"}),
    attributes=("water proof", "slim fit"),
    options={"color": "navy", "size": "x-large"},
    highest_price=50.0,
)
BOUGHT = Bought(
    query="rain jacket",
    category=("clothing", "outdoor", "rain jacket"),
    nouns=frozenset({"pavo", "rain", "jacket"}),
    attributes=("water proof", "slim fit", "faux fur"),
    texts=("Pavo Rain Jacket",),
    price=49.99,
    options={"color": "navy", "size": "x-large"},
)


@pytest.mark.parametrize(
    ("changes", "score"),
    [
        ({}, 1.0),
        ({"price": 50.01}, 4 / 5),
        ({"attributes": ("water proof",)}, 4 / 5),
        ({"attributes": (), "texts": ("of Slim Fit, Water Proof cloth",)}, 1.0),
        ({"options": {"color": "dark navy"}}, 4 / 5),
        ({"options": {}}, 3 / 5),
        ({"options": {"color": "red", "size": "small"}, "price": 99.0}, 2 / 5),
        ({"query": "poncho", "category": ("clothing", "outdoor", "poncho")}, 1.0),
        ({"query": "hat", "category": ("clothing", "x", "hat"), "nouns": frozenset({"hat"})}, 0.0),
    ],
)
def test_each_part(changes: dict[str, object], score: float) -> None:
    found, parts = webshop_reward(replace(BOUGHT, **changes), WANTED)
    assert found == pytest.approx(score)
    assert parts.keys() == NOTHING_BOUGHT.keys()


@pytest.mark.parametrize(
    "changes",
    [
        {"price": 50.01},
        {"query": "rain coat"},
        {"attributes": ("water proof",), "texts": ("of slim fit",)},
        {"options": {"color": "navy", "size": "xx-large"}},
        {"options": {"size": "navy", "color": "x-large"}},
        {"options": {"color": "navy"}},
    ],
)
def test_success_is_to_the_letter(changes: dict[str, object]) -> None:
    assert is_as_wanted(BOUGHT, WANTED)
    bought = replace(BOUGHT, **changes)
    assert not is_as_wanted(bought, WANTED)
    assert share_as_wanted(bought, WANTED) in ((0.6, 0.8) if bought.query == WANTED.query else (0,))


def test_kinds_of_things() -> None:
    other = replace(BOUGHT, query="hat", category=("clothing", "x", "hat"))
    many = replace(WANTED, nouns=frozenset({f"n{n}" for n in range(19)} | {"rain"}))
    assert type_score(replace(other, nouns=frozenset({"rain"})), many) == 0.1  # 1 of 20
    few = replace(WANTED, nouns=frozenset({"a", "b", "c", "d", "rain"}))
    assert type_score(replace(other, nouns=frozenset({"rain"})), few) == 0.5  # 1 of 5
    assert type_score(replace(BOUGHT, nouns=frozenset({"rain"})), few) == 1.0
    assert type_score(other, replace(WANTED, nouns=frozenset())) == 0.5
    assert type_score(other, WANTED) == 1.0  # 2 of 3


@pytest.mark.parametrize(
    ("one", "other", "ratio"),
    [
        ("navy", "Navy!", 100),
        ("dark blue", "blue", 100),
        ("x large", "xx large", 93),
        ("red", "blue", 29),
        ("", "blue", 0),
        ("new york mets", "new york yankees", 76),
    ],
)
def test_words_as_sets(one: str, other: str, ratio: int) -> None:
    assert token_set_ratio(one, other) == token_set_ratio(other, one) == ratio
