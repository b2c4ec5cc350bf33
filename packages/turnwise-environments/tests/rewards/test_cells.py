"""Cells: numbers as numbers, several in any order, and no hedges."""

import pytest

from turnwise_environments.rewards.cells import cells_match, share_of_cells

RIGHT = [
    ("3", ["3.0"]),
    ("1,258", ["1258"]),
    ("Ada", ["ada"]),
    ("2\u20131", ["2\u20131"]),
    ("-", ["-"]),
    ("a, b", ["b", "a"]),
    ('["a, b", "c"]', ["c", "a, b"]),
    ("[3]", ["3"]),
    ("1\n1", ["1", "1"]),
    ("Paris, France", ["Paris, France"]),
]
WRONG = [
    (None, ["3"]),
    ("", ["3"]),
    ("3", []),
    ("3 or 4", ["3"]),
    ("3, 4", ["3"]),
    ("3", ["3", "4"]),
    ("3, 3", ["3", "4"]),
    ("a b", ["a", "b"]),
    ("[" * 100_000, ["1"]),
    ("not 3", ["3"]),
]


@pytest.mark.parametrize(("answer", "cells"), RIGHT)
def test_right(answer: str, cells: list[str]) -> None:
    assert cells_match(answer, cells)


@pytest.mark.parametrize(("answer", "cells"), WRONG)
def test_wrong(answer: str | None, cells: list[str]) -> None:
    assert not cells_match(answer, cells)


@pytest.mark.parametrize(("answer", "cells"), RIGHT)
def test_a_right_answer_is_all_of_it(answer: str, cells: list[str]) -> None:
    assert share_of_cells(answer, cells) == 1.0


@pytest.mark.parametrize(
    ("answer", "cells", "share"),
    [
        (None, ["3"], 0.0),
        ("", ["3"], 0.0),
        ("4", ["3"], 0.0),
        ("3, 4", ["3"], 1 / 2),
        ("3", ["3", "4"], 1 / 2),
        ("3, 3", ["3", "4"], 1 / 3),
        ("1, 2, 3, 4, 5, 6, 7, 8, 9, 10", ["3"], 1 / 10),
        ("not 3", ["3"], 0.0),
    ],
)
def test_a_part_of_the_cells_is_worth_its_share(
    answer: str | None, cells: list[str], share: float
) -> None:
    assert share_of_cells(answer, cells) == pytest.approx(share)
