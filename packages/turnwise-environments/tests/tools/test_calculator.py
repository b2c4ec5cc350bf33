"""The calculator: exact values, what it refuses, and what it says then."""

import contextlib
import math
import re
import time
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.errors import ToolError
from turnwise_environments.tools.calculator import MAX_CHARACTERS, calculate, evaluate

VALUES = {
    "0.1 + 0.2": "0.3",
    "10 / 4": "2.5",
    "-2 ** 2": "-4",
    "2 ** -3": "0.125",
    "7 // 2": "3",
    "-7 % 3": "2",
    "(1 + 2) * 3 =": "9",
    "1,000 * 2": "2000",
    "$5 × 3 − 1": "14",
    "2e3 + .5": "2000.5",
    "1 / 3 * 3": "1",
    "sqrt(16 / 9) * 3": "4",
    "4 ** 0.5": "2",
    "round(2.5) + round(-2.5)": "0",
    "round(2.345, 2)": "2.35",
    "round(1234, -2)": "1200",
    "max(1, 2) + min(3, 4) + abs(-1)": "6",
    "floor(2.7) + ceil(2.1)": "5",
    "12345678901234567890 * 10": "123456789012345678900",
    "2 / 3": "0.6666666667 (rounded; exactly 2/3)",
    "sqrt(2)": "1.414213562 (rounded)",
    "sqrt(2) * sqrt(2)": "2 (rounded)",
    "8 ** (1 / 3)": "2 (rounded)",
    "pi": "3.141592654 (rounded)",
    "exp(1) + log(1)": "2.718281828 (rounded)",
    "10 ** 40": "1e+40 (rounded)",
}
REFUSED = {
    "": "empty",
    "1 / 0": "division by zero",
    "0 ** -1": "division by zero",
    "9 ** 9 ** 9 ** 9": "too large",
    "2 ** 2000": "too large",
    "1e999999999": "too large",
    "1e100 * 1e100": "too many digits",
    "exp(1000)": "too large",
    "1" * (MAX_CHARACTERS + 1): "split it",
    "20% * 50": r"for 20% of 50 write 0\.2 \* 50",
    "2 ^ 3": r"write \*\* for powers",
    "2 x 3": r"write \* for times",
    "2pi": "write an operator",
    "1e5or 2": "write an operator",
    "12 + 7 = 19": "without =",
    "(1 + 2": "a parenthesis is missing",
    "1 2": "not complete arithmetic",
    "5(3)": r"write \* between",
    "max(1,000)": "one number or several",
    "x * 2": "'x' is no number",
    "abs": "'abs' is no number",
    "open(1)": "there is no function 'open'; functions: abs",
    "sqrt()": "wrong number of arguments",
    "max(1)": "wrong number of arguments",
    "sqrt(-1)": "a number of 0 or more, not -1",
    "log(0)": "a number above 0, not 0",
    "(-8) ** (1 / 3)": "no power that is not whole",
    "round(1, 0.5)": "whole number of digits",
    "(1, 2)": "a comma is not arithmetic",
    "True + 1": "only numbers",
    "1 if 2 else 3": "only numbers",
    "(1).__class__": "write an operator",
    "__import__('os')": "is not arithmetic",
    "1; 2": "is not arithmetic",
    "[1][0]": "is not arithmetic",
    "\x00": "is not arithmetic",
    "１ + ２": "is not arithmetic",
}


@pytest.mark.parametrize("expression", VALUES)
def test_values_are_exact_or_say_that_they_are_rounded(expression: str) -> None:
    assert calculate(expression) == VALUES[expression]


@pytest.mark.parametrize("expression", REFUSED)
def test_what_is_refused_is_refused_at_once_and_says_why(expression: str) -> None:
    start = time.process_time()
    with pytest.raises(ToolError, match=REFUSED[expression]) as error:
        calculate(expression)
    assert time.process_time() - start < 0.5
    assert len(str(error.value)) < 200


NUMBERS = st.decimals("0.001", "9999", places=3).map(str)
EXPRESSIONS = st.recursive(
    NUMBERS,
    lambda inner: st.builds(
        lambda left, sign, right: f"({left} {sign} {right})", inner, st.sampled_from("+-*/"), inner
    ),
    max_leaves=6,
)


@settings(max_examples=40)
@given(EXPRESSIONS)
def test_it_agrees_with_python_in_fractions(expression: str) -> None:
    """Python itself works the expression out, with a Fraction in each number's place."""
    fractions = re.sub(r"([\d.]+)", r"Fraction('\1')", expression)
    try:
        expected = eval(fractions, {"Fraction": Fraction})
    except ZeroDivisionError:
        with pytest.raises(ToolError, match="division by zero"):
            evaluate(expression)
        return
    number = evaluate(expression)
    assert (number.value, number.exact) == (expected, True)
    shown = calculate(expression)
    if "rounded" not in shown:
        assert Fraction(shown) == expected
    else:
        assert math.isclose(float(shown.split()[0]), float(expected), rel_tol=1e-9)


@given(st.text("0123456789+-*/%().,eE_ x=^sqrtmaxround$\n", max_size=40))
def test_any_text_is_a_number_or_told_what_is_wrong(text: str) -> None:
    with contextlib.suppress(ToolError):
        assert calculate(text)
