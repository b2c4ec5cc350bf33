"""Answers that are words, and cells of tables: several in any order, and no hedges."""

from typing import Any

import pytest

from tests.rewards.episodes import answer, call, episode, malformed
from turnwise.rewards.measuring import PartError
from turnwise.types import Turn
from turnwise_environments.rewards.answers import cited, exact_match, f1, search_r1, tool_star
from turnwise_environments.rewards.cells import cells_match, share_of_cells

ROME = {"answers": ["Rome", "Roma"]}


def test_exact_match_and_f1_know_aliases() -> None:
    assert exact_match(episode(answer("the roma."), secret=ROME)) == 1.0
    assert exact_match(episode(answer("Rome or Paris"), secret=ROME)) == 0.0
    assert f1(episode(answer("Rome Paris"), secret=ROME)) == pytest.approx(2 / 3)
    assert exact_match(episode(answer("Rome"), secret={"answer": "Rome"})) == 1.0
    assert exact_match(episode(secret=ROME)) == f1(episode(secret=ROME)) == 0.0


@pytest.mark.parametrize("secret", [{}, {"answers": []}, {"answers": [None]}, {"answer": 3}])
def test_a_task_without_answers_has_no_number(secret: dict[str, object]) -> None:
    with pytest.raises(PartError, match="neither `answers`, a list of texts, nor `answer`"):
        exact_match(episode(answer("Rome"), secret=secret))


SHOWN = "[it.1] Rome. The capital of Italy.\n[fr.1] Paris: the capital\nof France."
ITALY = {"answers": ["Italy"]}
CITED = {
    "by id": ("it is Italy, says [it.1]", SHOWN, 1.0),
    "by title": ("the card of Rome says it", SHOWN, 1.0),
    "of another document": ("[fr.1] says it", SHOWN, 0.0),
    "by another title": ("Paris says it", SHOWN, 0.0),
    "of a document that was not shown": ("[it.2] says it", SHOWN, 0.0),
    "by an id without brackets": ("it.1 says it", SHOWN, 0.0),
    "of all that was shown": ("see [it.1] [fr.1]", SHOWN, 0.0),
    "of nothing": ("it is Italy", SHOWN, 0.0),
    "without documents": ("[it.1] says it", "The capital of Italy is Rome.", 0.0),
    "of a document that does not state it": ("[it.1]", SHOWN.replace("Italy", "a land"), 0.0),
}


@pytest.mark.parametrize("how", CITED)
def test_cited(how: str) -> None:
    thought, shown, number = CITED[how]
    assert cited(episode(call("search", shown), answer("Italy", thought), secret=ITALY)) == number
    # A wrong answer may be cited: whether it is right is another part.
    assert cited(episode(call("search", shown), answer("Paris", thought), secret=ITALY)) == number


def test_an_id_names_the_document_that_was_shown_last_under_it() -> None:
    first, then = "[1] Rome. The capital of Italy.", "[1] Paris. The capital of France."
    said = answer("Italy", "see [1]")
    assert cited(episode(call("search", first), said, secret=ITALY)) == 1.0
    assert cited(episode(call("search", first), call("search", then), said, secret=ITALY)) == 0.0
    assert cited(episode(call("search", then), call("search", first), said, secret=ITALY)) == 1.0
    assert cited(episode(said, call("search", first), secret=ITALY)) == 0.0
    assert cited(episode(call("search", first, thought="see [1]"), secret=ITALY)) == 0.0


def test_what_another_tool_repeats_can_be_left_out() -> None:
    echo = call("python", "[9] Italy.")
    one = episode(echo, answer("Italy", "see [9]"), secret=ITALY)
    assert (cited(one), cited(one, tools=("search",))) == (1.0, 0.0)
    real = episode(call("search", SHOWN), answer("Italy", "see [it.1]"), secret=ITALY)
    assert cited(real, tools=("search",)) == 1.0


FOUND = call("search", "Rome is the capital.", query="capital")
LOST = call("search", "No results.", query="x")
SEARCH_R1: list[tuple[tuple[Turn, ...], float, float]] = [
    ((FOUND, answer("Rome")), 1.0, 1.0),
    ((answer("Rome", thought=""),), 1.0, 0.8),  # right, in the wrong form
    ((malformed(), answer("Rome")), 1.0, 0.8),
    ((LOST, answer("Paris")), 0.0, 0.2),
    ((FOUND, answer("Paris")), 0.0, 0.3),  # it was retrieved
    ((malformed(), FOUND, answer("Paris")), 0.0, 0.1),
    ((FOUND, LOST), 0.0, 0.0),
    ((), 0.0, 0.0),
]


@pytest.mark.parametrize(("turns", "plain", "formed"), SEARCH_R1)
def test_search_r1(turns: tuple[Turn, ...], plain: float, formed: float) -> None:
    one = episode(*turns, secret=ROME)
    assert search_r1(one) == plain
    assert search_r1(one, format=True, retrieval=0.1) == pytest.approx(formed)


def test_tool_star() -> None:
    def of(*turns: Turn, **options: Any) -> float:
        return tool_star(episode(*turns, secret={"answers": ["Rome Italy"]}), **options)

    search, python = call("search", "Rome"), call("python", "4")
    assert of(search, python, answer("Rome, Italy")) == 1.1
    assert of(search, answer("Rome Italy")) == 1.0
    assert of(search, python, answer("Rome")) == pytest.approx(2 / 3 + 0.1)
    assert of(search, python, answer("Paris")) == 0.0
    assert of(search, python) == of(malformed(), answer("Rome Italy")) == -1.0
    assert of(search, call("python", ok=False), answer("Rome Italy")) == 1.0
    own = {"tools": ("calculator",), "bonus": 0.5}
    assert of(call("calculator"), answer("Rome Italy"), **own) == 1.5


CELLS: list[tuple[str | None, list[str], float]] = [
    ("3", ["3.0"], 1.0),
    ("1,258", ["1258"], 1.0),
    ("Ada", ["ada"], 1.0),
    ("2\u20131", ["2\u20131"], 1.0),
    ("-", ["-"], 1.0),
    ("a, b", ["b", "a"], 1.0),
    ('["a, b", "c"]', ["c", "a, b"], 1.0),
    ("[3]", ["3"], 1.0),
    ("1\n1", ["1", "1"], 1.0),
    ("Paris, France", ["Paris, France"], 1.0),
    (None, ["3"], 0.0),
    ("", ["3"], 0.0),
    ("3", [], 0.0),
    ("4", ["3"], 0.0),
    ("3 or 4", ["3"], 0.0),
    ("not 3", ["3"], 0.0),
    ("c d", ["c", "d"], 0.0),
    ("[" * 100_000, ["1"], 0.0),
    ("3, 4", ["3"], 1 / 2),
    ("3", ["3", "4"], 1 / 2),
    ("3, 3", ["3", "4"], 1 / 3),
    (", ".join(map(str, range(299, -1, -1))), list(map(str, range(300))), 1.0),
    ("1, 2, 3, 4, 5, 6, 7, 8, 9, 10", ["3"], 1 / 10),
]


@pytest.mark.parametrize(("answer", "cells", "share"), CELLS)
def test_cells_match_or_a_part_of_them_is_worth_its_share(
    answer: str | None, cells: list[str], share: float
) -> None:
    assert cells_match(answer, cells) is (share == 1.0)
    assert share_of_cells(answer, cells) == pytest.approx(share)
