"""Numeric answers: what counts as the accepted number, and what must not."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mathematical_answers import pairs
from turnwise_environments.rewards.numeric import MAX_CHARACTERS, matches, read_quantity

ODD: list[tuple[str | None, str, bool]] = [
    (" 7.0 ", "7", True),
    *(("5", "5%", True), ("5 km", "5%", False), ("5000 m", "5 km", True), ("5 cm", "5 km", False)),
    *((answer, "5", False) for answer in (None, "", "   ", "5\n6", "5" * (MAX_CHARACTERS + 1))),
    (" ".join(map(str, range(10000))), "5", False),
]
PAIRS = [*ODD, *((one.given, one.accepted, one.right) for one in pairs("numbers"))]
UNITS = [
    ("5", ["km"], True),
    ("5 km", ["km"], True),
    ("5000 m", ["km"], True),
    ("5,000 meters", ["km"], True),
    ("5 cm", ["km"], False),
    ("5 miles", ["km"], False),
    ("5%", ["km"], False),
    ("$5", ["km"], False),
    ("$5", ["dollars"], True),
    ("5 dollars", ["dollars"], True),
    ("500 cents", ["dollars"], True),
    ("€5", ["dollars"], False),
    ("300 minutes", ["hours"], True),
    ("5 hrs", ["hours"], True),
    ("5 hours each", ["hours"], True),
    ("5 boxes", ["boxes"], True),
    ("5 box", ["boxes"], True),
    ("5 bags", ["boxes"], False),
    ("5 red apples", ["apples", "red apples"], True),
    ("5 red apples", ["apples"], False),
    ("5", [], True),
    ("5 km", [], False),
]


@pytest.mark.parametrize(("answer", "accepted", "right"), PAIRS)
def test_answers(answer: str | None, accepted: str, right: bool) -> None:
    assert matches(answer, accepted) is right


@pytest.mark.parametrize(("answer", "units", "right"), UNITS)
def test_units(answer: str, units: list[str], right: bool) -> None:
    assert matches(answer, "5", units) is right


def test_an_accepted_answer_that_is_no_number_is_a_broken_task() -> None:
    with pytest.raises(ValueError, match="'five' is not a number"):
        matches("5", "five")


@given(st.integers(-(10**12), 10**12), st.integers(0, 6))
def test_every_way_of_writing_a_decimal_is_the_same_number(whole: int, places: int) -> None:
    value = Fraction(whole, 10**places)
    digits = str(abs(whole)).rjust(places + 1, "0")
    left, right = digits[: len(digits) - places], digits[len(digits) - places :]
    sign, point = "-" if whole < 0 else "", f".{right}" if right else ""
    for written in (
        f"{sign}{left}{point}",
        f"{sign}{int(left):,}{point}",
        f"{sign}{left}.{right}0",
    ):
        quantity = read_quantity(written)
        assert quantity.value == value
        assert matches(written, f"{sign}{left}{point}")
        assert not matches(written, f"{sign}{left}.{right}1")


@given(st.text(max_size=20))
def test_any_text_is_judged(text: str) -> None:
    assert matches(text, "5") in (True, False)
    assert not matches(f"{text} not 5", "5")
