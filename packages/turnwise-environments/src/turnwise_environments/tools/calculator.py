"""A calculator for one line of arithmetic: exact where a result can be, and never Python's `eval`.

An expression is read by `ast` and worked out here, in fractions, so that 0.1 + 0.2 is 0.3 and
nothing but numbers, operators and the FUNCTIONS can be reached. Roots and logarithms that are not
rational are rounded, and the result says so. Size is limited before anything is worked out: an
expression takes microseconds or is refused. Not here: units and currencies.
"""

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal, Inexact, localcontext
from fractions import Fraction

from turnwise.errors import ToolError
from turnwise.tools.tool import tool

MAX_CHARACTERS = 200
MAX_BITS = 512
"""Most bits of a numerator or denominator, about 150 digits: larger numbers are refused."""
MAX_EXPONENT = 1000
SHOWN_DIGITS = 10
"""Significant digits of a result that is rounded."""
EXACT_DIGITS = 30
"""Results of more digits are rounded."""

_UNKNOWN_SIGN = re.compile(r"[^0-9A-Za-z_.+\-*/%(), ]")
_GROUPED = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d,])")
_JOINED = re.compile(r"(?<![A-Za-z_\d.])[\d.]++(?:[eE][+-]?\d++)?+[A-Za-z_]")
_TIMES = re.compile(r"[\d)]\s+[xX]\s+[\d(]")
_REWRITTEN = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-", "–": "-", "$": "", "\n": " "})


@dataclass(frozen=True)
class Number:
    """A value, and whether it is exact. Example: Number(Fraction(1, 3))."""

    value: Fraction
    exact: bool = True


@tool
def calculate(expression: str) -> str:
    """Work out one line of arithmetic, such as (3 + 4) * 2.

    Raises ToolError, in words that say what to write instead, for text that is not arithmetic, has
    no value, or is too large.

    >>> calculate("0.1 + 0.2"), calculate("10 / 4"), calculate("2 / 3")
    ('0.3', '2.5', '0.6666666667 (rounded; exactly 2/3)')
    """
    return show(evaluate(expression))


def evaluate(expression: str) -> Number:
    """The value of an expression. Raises ToolError as `calculate` does."""
    text = _cleaned(expression)
    try:
        tree = ast.parse(text, mode="eval")
    except SyntaxError:
        raise ToolError(_help(text)) from None
    return _value(tree.body, text)


def show(number: Number) -> str:
    """A number as the agent reads it: exact as long as it is short, else rounded."""
    value = number.value
    exact = _decimal(value) if number.exact else None
    if exact is not None:
        return exact
    rounded = _rounded(value)
    fraction = f"{value.numerator}/{value.denominator}"
    short = number.exact and value.denominator > 1 and len(fraction) <= EXACT_DIGITS
    return f"{rounded} (rounded; exactly {fraction})" if short else f"{rounded} (rounded)"


def _cleaned(expression: str) -> str:
    text = expression.translate(_REWRITTEN).strip().removesuffix("=").strip()
    if not text:
        raise ToolError("the expression is empty: write arithmetic, such as (3 + 4) * 2")
    if len(text) > MAX_CHARACTERS:
        raise ToolError(f"the expression is longer than {MAX_CHARACTERS} characters: split it")
    if "=" in text:
        raise ToolError("write only what is to be worked out, without =")
    if "^" in text:
        raise ToolError("^ is not an operator here: write ** for powers")
    unknown = _UNKNOWN_SIGN.search(text)
    if unknown:
        raise ToolError(f"{unknown.group()!r} is not arithmetic: write numbers, + - * / ** and ()")
    grouped = _GROUPED.search(text)
    if grouped and re.search("[A-Za-z]", text):
        raise ToolError(
            f"is {grouped.group()!r} one number or several? Write a number without commas, and a "
            "space after a comma between arguments"
        )
    text = _GROUPED.sub(lambda match: match.group().replace(",", ""), text)
    joined = _JOINED.search(text)
    if joined:
        raise ToolError(f"write an operator such as * between the parts of {joined.group()!r}")
    return text


def _help(text: str) -> str:
    if re.search(r"%\s*(?:$|[-+*/)])", text):
        return "% is the remainder of a division: for 20% of 50 write 0.2 * 50"
    if _TIMES.search(text):
        return "write * for times"
    if text.count("(") != text.count(")"):
        return f"a parenthesis is missing in {text!r:.40}"
    return f"{text!r:.40} is not complete arithmetic: write, for example, (3 + 4) * 2"


def _value(node: ast.expr, text: str) -> Number:
    match node:
        case ast.Constant(value=int() | float()) if not isinstance(node.value, bool):
            return Number(_literal(ast.get_source_segment(text, node) or ""))
        case ast.UnaryOp(op=ast.USub()):
            inner = _value(node.operand, text)
            return Number(-inner.value, inner.exact)
        case ast.UnaryOp(op=ast.UAdd()):
            return _value(node.operand, text)
        case ast.BinOp() if type(node.op) in OPERATORS:
            left, right = _value(node.left, text), _value(node.right, text)
            return _applied(OPERATORS[type(node.op)], left, right)
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in FUNCTIONS:
            return _applied(FUNCTIONS[name], *(_value(argument, text) for argument in arguments))
        case ast.Call(func=ast.Name(id=name)):
            raise ToolError(f"there is no function {name!r}; functions: {', '.join(FUNCTIONS)}")
        case ast.Call():
            raise ToolError("write * between a number and a parenthesis")
        case ast.Name(id=name) if name in CONSTANTS:
            return Number(CONSTANTS[name], exact=False)
        case ast.Name(id=name):
            raise ToolError(f"{name!r} is no number: write its value; functions take parentheses")
        case ast.Tuple():
            raise ToolError("a comma is not arithmetic: write one expression, decimals with a dot")
    raise ToolError("only numbers, + - * / // % **, parentheses and functions can be worked out")


def _literal(text: str) -> Fraction:
    try:
        plain = Decimal(text)
    except ArithmeticError:
        raise ToolError(f"{text!r} is not a decimal number") from None
    if abs(plain.adjusted()) > MAX_BITS:  # 1e999999999 would fill the memory
        raise ToolError(f"{text} is too large or too small to work with")
    return Fraction(plain)


def _applied(function: Callable[..., Number], *arguments: Number) -> Number:
    try:
        result = function(*arguments)
    except ZeroDivisionError:
        raise ToolError("division by zero has no value") from None
    except OverflowError:
        raise ToolError("the number is too large to work with") from None
    except TypeError:
        raise ToolError("a function has the wrong number of arguments") from None
    size = max(result.value.numerator.bit_length(), result.value.denominator.bit_length())
    if size > MAX_BITS:
        raise ToolError("the number has too many digits to work with")
    return result


def _exactly(function: Callable[..., Fraction | int]) -> Callable[..., Number]:
    """An operation whose result is as exact as what goes into it."""

    def applied(*arguments: Number) -> Number:
        value = function(*(argument.value for argument in arguments))
        return Number(Fraction(value), all(argument.exact for argument in arguments))

    return applied


def _nearly(function: Callable[[float], float], domain: str) -> Callable[[Number], Number]:
    """A function of floating-point numbers; `domain` says what it can be given."""

    def applied(argument: Number) -> Number:
        try:
            return Number(Fraction(function(float(argument.value))), exact=False)
        except ValueError:
            raise ToolError(f"this needs {domain}, not {show(argument)}") from None

    return applied


def _power(base: Number, exponent: Number) -> Number:
    if exponent.value == Fraction(1, 2):
        return _square_root(base)
    if exponent.value.denominator != 1:
        if base.value < 0:
            raise ToolError("a negative number has no power that is not whole")
        return Number(Fraction(float(base.value) ** float(exponent.value)), exact=False)
    whole = int(exponent.value)
    bits = max(base.value.numerator.bit_length(), base.value.denominator.bit_length()) - 1
    if abs(whole) > MAX_EXPONENT or bits * abs(whole) > MAX_BITS:
        raise ToolError(f"the power {whole} is too large to work with")
    return Number(base.value**whole, base.exact and exponent.exact)


def _square_root(argument: Number) -> Number:
    value = argument.value
    if value < 0:
        raise ToolError(f"this needs a number of 0 or more, not {show(argument)}")
    top, bottom = math.isqrt(value.numerator), math.isqrt(value.denominator)
    if Fraction(top * top, bottom * bottom) == value:
        return Number(Fraction(top, bottom), argument.exact)
    return Number(Fraction(math.sqrt(value)), exact=False)


def _round(number: Number, digits: Number | None = None) -> Number:
    """Halves go away from zero, as in school."""
    places = Fraction(0) if digits is None else digits.value
    if places.denominator != 1 or abs(places) > SHOWN_DIGITS:
        raise ToolError(f"round to a whole number of digits, up to {SHOWN_DIGITS}")
    scale = Fraction(10) ** int(places)
    rounded = math.floor(abs(number.value) * scale + Fraction(1, 2)) / scale
    return Number(rounded if number.value >= 0 else -rounded, number.exact)


def _decimal(value: Fraction) -> str | None:
    """All digits of a value; None where they are endless or too many."""
    with localcontext(prec=EXACT_DIGITS) as context:
        text = f"{Decimal(value.numerator) / Decimal(value.denominator):f}"
    exact = not context.flags[Inexact] and sum(map(str.isdigit, text)) <= EXACT_DIGITS
    return text if exact else None


def _rounded(value: Fraction) -> str:
    with localcontext(prec=SHOWN_DIGITS):
        shown = (Decimal(value.numerator) / Decimal(value.denominator)).normalize()
    return f"{shown:f}" if abs(shown.adjusted()) <= SHOWN_DIGITS else f"{shown:e}"


OPERATORS: Mapping[type[ast.operator], Callable[[Number, Number], Number]] = {
    ast.Add: _exactly(operator.add),
    ast.Sub: _exactly(operator.sub),
    ast.Mult: _exactly(operator.mul),
    ast.Div: _exactly(operator.truediv),
    ast.FloorDiv: _exactly(operator.floordiv),
    ast.Mod: _exactly(operator.mod),
    ast.Pow: _power,
}
FUNCTIONS: Mapping[str, Callable[..., Number]] = {
    "abs": _exactly(abs),
    "ceil": _exactly(math.ceil),
    "exp": _nearly(math.exp, "a number that is not too large"),
    "floor": _exactly(math.floor),
    "log": _nearly(math.log, "a number above 0"),
    "max": _exactly(max),
    "min": _exactly(min),
    "round": _round,
    "sqrt": _square_root,
}
CONSTANTS = {"e": Fraction(math.e), "pi": Fraction(math.pi)}
