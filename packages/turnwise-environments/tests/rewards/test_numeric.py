"""Numeric answers: what counts as the accepted number, and what must not."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise_environments.rewards.numeric import MAX_CHARACTERS, matches, read_quantity

RIGHT = [
    ("1234.5", "1,234.50"),
    ("$1,234.50", "1234.5"),
    ("-$5", "-5"),
    ("$-5", "-5"),
    ("−5", "-5"),
    ("+5", "5"),
    ("7.", "7"),
    (" 7.0 ", "7"),
    ("\\boxed{7}", "7"),
    ("$7$", "7"),
    ("#### 7", "7"),
    ("3/4", "0.75"),
    ("1 1/2", "1.5"),
    (".5", "0.5"),
    ("1e3", "1,000"),
    ("24 clips", "24"),
    ("24clips.", "24"),
    ("5 miles per hour", "5"),
    ("$5 per hour", "5"),
    ("10%", "10"),
    ("10 percent", "10"),
    ("10\\%", "10"),
    ("2 dozen eggs", "24"),
    ("1.5 million", "1500000"),
    ("0.33", "1/3"),
    ("0.6667", "2/3"),
    ("1/3", "1/3"),
]
WRONG = [
    (None, "5"),
    ("", "5"),
    ("   ", "5"),
    (":", "5"),
    ("Thought process:", "5"),
    ("five", "5"),
    ("-5", "5"),
    ("--5", "5"),
    ("5.000001", "5"),
    ("3.141593", "3.14159"),
    ("not 5", "5"),
    ("5 not", "5"),
    ("the answer is 5", "5"),
    ("4 or 5", "5"),
    ("5 or 4", "5"),
    ("5 or four", "5"),
    ("4, 5", "5"),
    ("1 2 3 4 5", "5"),
    ("5\n6", "5"),
    ("\\boxed{5} \\boxed{6}", "5"),
    ("\\boxed{5}\\boxed{6}", "5"),
    ("$4$5$", "5"),
    ("1=2", "2"),
    ("x=1=2", "2"),
    ("a = 7 = 101", "101"),
    ("2 + 3", "5"),
    ("48/2", "24"),
    ("6/8", "0.75"),
    ("5/1", "5"),
    ("1 3/2", "2.5"),
    ("0/0", "0"),
    ("10%", "0.1"),
    ("100%", "1"),
    ("0.1", "10"),
    ("about 5", "5"),
    ("5 at least", "5"),
    ("5 or so", "5"),
    ("5k", "5"),
    ("5 million", "5"),
    ("5 trillion", "5"),
    ("$5 euros", "5"),
    ("1,23", "123"),
    ("1 234", "1234"),
    ("1,2345", "12345"),
    ("0.3", "1/3"),
    ("0.34", "1/3"),
    ("1/3", "0.33"),
    ("inf", "5"),
    ("nan", "5"),
    ("٥", "5"),
    ("5²", "5"),
    ("0x5", "5"),
    ("5" * (MAX_CHARACTERS + 1), "5"),
    ("1e999999", "5"),
    (" ".join(map(str, range(10000))), "5"),
]
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


@pytest.mark.parametrize(("answer", "accepted"), RIGHT)
def test_right(answer: str, accepted: str) -> None:
    assert matches(answer, accepted)


@pytest.mark.parametrize(("answer", "accepted"), WRONG)
def test_wrong(answer: str | None, accepted: str) -> None:
    assert not matches(answer, accepted)


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
        assert quantity is not None
        assert quantity.value == value
        assert matches(written, f"{sign}{left}{point}")
        assert not matches(written, f"{sign}{left}.{right}1")


@given(st.text(max_size=20))
def test_any_text_is_judged(text: str) -> None:
    assert matches(text, "5") in (True, False)
    assert not matches(f"{text} not 5", "5")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r"\frac{3}{4}", Fraction(3, 4)),
        (r"\boxed{\dfrac{3}{4}}", Fraction(3, 4)),
        (r"$-\tfrac12$", Fraction(-1, 2)),
        (r"1\frac{1}{2}", Fraction(3, 2)),
        (r"12\text{ cm}", Fraction(12)),
        (r"1{,}234{,}000", Fraction(1234000)),
        (r"10\%", Fraction(10)),
        (r"\$32.50", Fraction(65, 2)),
        (r"90^\circ", Fraction(90)),
        (r"90^{\circ}", Fraction(90)),
        (r"\text{5 miles}", Fraction(5)),
        (r"10\,000", Fraction(10000)),
        (r"3\text{ or }4", None),
        (r"\frac{48}{2}", None),
        (r"\frac{x}{2}", None),
        (r"2\pi", None),
        (r"\sqrt{2}", None),
        (r"x^2+1", None),
        (r"(3,4)", None),
        (r"\text{not } 5", None),
    ],
)
def test_numbers_in_latex(text: str, value: Fraction | None) -> None:
    found = read_quantity(text)
    assert (None if found is None else found.value) == value
