"""Equality of mathematical expressions, with math-verify (extra `mathematics`), made strict.

math-verify looks for an answer in a text, and takes what it finds last; here a text is one
expression as a whole (`expressions.py`), and has the form of the accepted one: a set for a set, an
equation for an equation, as many parts, no other letters. Its reader gives sympy plain expressions,
with decimals as fractions, so nothing is rounded. What the language does not have is equal to
itself alone.

An expression can keep sympy busy for ever, so it works in another process, within limits of
processor time and memory. An answer that runs into them is wrong, if the accepted one is compared
with itself within them; else nothing is known, and the episode is ungraded. So it is where the
process ends by itself; where an answer ended it, it does so again.
"""

import functools
import logging
import math
import os
import re
import resource
import signal
import threading
import time
from contextlib import suppress
from typing import Any

from turnwise.errors import InfrastructureError, ToolError
from turnwise.rewards.answer import exact_match
from turnwise.tools.isolated import Workers
from turnwise_environments.common import check_installed
from turnwise_environments.rewards.expressions import (
    UNORDERED,
    Expression,
    choice,
    is_words,
    plain,
    read_expression,
    symbols_of,
    unit_of,
    unwrapped,
)
from turnwise_environments.rewards.numeric import is_unit
from turnwise_environments.rewards.solutions import INTERVALS, REGIONS, name_of, solved

CPU_SECONDS = 0.75
"""Processor time of a comparison: four times what all but one of 1,586 right answers took."""
SECONDS = 30.0
"""Time that a comparison may wait, on a machine that is busy with others."""
MEMORY = 1 << 30
"""Bytes of address space."""
FAILURES = (
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""Errors that sympy raises where it cannot do something."""
MOST_DIGITS, POINTS = 1200, (7, -11, 1)
"""Digits in which a difference is looked for, and the points at which it is."""


def expressions_match(answer: str | None, accepted: str) -> bool:
    """Whether an answer is the accepted expression, in this or another form. Raises
    InfrastructureError where the accepted expression cannot be compared even with itself, and
    MissingExtraError."""
    given = plain(answer or "")
    if not given:
        return False
    if given == plain(accepted) or (is_words(accepted) and exact_match(given, [plain(accepted)])):
        return True
    if choice(accepted) is not None and choice(answer or "") is not None:
        return choice(answer or "") == choice(accepted)
    if is_words(accepted):
        return False
    check_installed("math-verify", "mathematics")
    unit = unit_of(accepted)
    wanted = read_expression(accepted, unit)
    one = read_expression(answer or "", unit or _known_unit(answer or ""))
    if wanted is None or one is None:
        return False
    one, wanted = _as_point(one), _as_point(wanted)
    return (one.kind == wanted.kind == "=" and _agree(one, wanted)) or _values_agree(one, wanted)


def _as_point(one: Expression) -> Expression:
    """A column as the tuple of its coordinates; any other expression as it is."""
    rows = one.parts if one.kind == "matrix" else ()
    if len(rows) < 2 or any(len(row.parts) != 1 for row in rows):
        return one
    return Expression("()", parts=tuple(row.parts[0] for row in rows))


def _values_agree(one: Expression, wanted: Expression) -> bool:
    """Whether two expressions are equal once what is solved is the values of its letters."""
    (given, own), (accepted, asked) = solved(one), solved(wanted)
    if wanted.text.isalpha():
        given, own = one, frozenset()  # A = B is not B
    if wanted.kind != "scalar":
        given, accepted = _only(given), _only(accepted)
    return not (own and asked and own != asked) and _agree(given, accepted)


def _agree(one: Expression, wanted: Expression) -> bool:
    return _fits(one, wanted) and _compared(one, wanted)


def _known_unit(answer: str) -> str:
    """The unit behind an expression, in an upright font or as a word; "" for other letters."""
    word = re.search(r"(?<=[\s}])(?:(?:square|cubic|sq) )?[a-z]{2,}(?:\^[23])?$", unwrapped(answer))
    unit = unit_of(answer) or (word[0] if word else "")
    return unit if is_unit(unit) else ""


def _only(one: Expression) -> Expression:
    return one.parts[0] if one.kind == "\\{\\}" and len(one.parts) == 1 else one


def _fits(one: Expression, wanted: Expression) -> bool:
    """Whether two expressions can be equal: in their forms, and in their letters."""
    same = one.kind == wanted.kind and len(one.parts) == len(wanted.parts)
    letters = symbols_of(wanted)
    told_apart = len({letter.lower() for letter in letters}) == len(letters)  # sympy has one case
    regions = wanted.kind in REGIONS and one.kind in REGIONS
    return (same or regions) and told_apart and symbols_of(one) <= letters


@functools.lru_cache(maxsize=4096)  # the members of a group often give one answer
def _compared(one: Expression, wanted: Expression) -> bool:
    """Compare in a worker. An answer that ends the worker has to do so again to be wrong."""
    try:
        found = _ask(one, wanted)
        died = False
    except ToolError:
        found, died = None, True
    if found is not None:
        return found
    if not _sound(wanted):
        raise InfrastructureError("the accepted answer is not even equal to itself within limits")
    try:
        return died and bool(_ask(one, wanted))
    except ToolError:
        return False


@functools.lru_cache(maxsize=4096)
def _sound(wanted: Expression) -> bool:
    """Whether an accepted expression is equal to itself, worked out within the limits."""
    try:
        return bool(_ask(wanted, wanted, True))
    except ToolError as error:
        raise InfrastructureError(f"the accepted answer cannot be compared: {error}") from None


def _ask(*arguments: Any) -> bool | None:
    """Call `compare` in a worker; there are no more of them than processors."""
    with _PLACES:
        found: bool | None = _workers().call(compare, *arguments, seconds=SECONDS)
        return found


_PLACES = threading.BoundedSemaphore(os.cpu_count() or 1)


@functools.cache
def _workers() -> Workers:
    return Workers(prepare)


class UnreadableError(Exception):
    """A text is in the language, and sympy's reader does not know it: it is equal to nothing."""


class _TooLong(BaseException):
    """Not an Exception, which sympy catches."""


def prepare() -> None:
    """Get a worker ready: import sympy, then limit the memory."""
    from math_verify import parser

    del parser
    logging.disable()  # that its own deadlines are off, at every call
    # macOS has no such limit: there the time alone is bounded.
    with suppress(ValueError):
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGPROF, _stop)


def _stop(number: int, frame: object) -> None:
    raise _TooLong


def compare(one: Expression, wanted: Expression, thoroughly: bool = False) -> bool | None:
    """Whether two expressions are equal, or None where that takes too long or sympy cannot do it;
    `thoroughly` works out what is the same text too. For workers: a single operation that takes too
    long ends the process."""
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(
        resource.RLIMIT_CPU, (math.ceil(time.process_time() + 2 * CPU_SECONDS), hard)
    )
    try:
        # It rings again, since what is raised in the middle of sympy may be lost there.
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS, CPU_SECONDS / 4)
        return _equal(one, wanted, thoroughly)
    except UnreadableError:
        return False
    except (*FAILURES, _TooLong):
        return None
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _equal(one: Expression, wanted: Expression, thoroughly: bool) -> bool:
    if one.kind == wanted.kind and len(one.parts) == len(wanted.parts):
        if one.kind == "scalar":
            return _scalars_equal(one.text, wanted.text, thoroughly)
        if one.kind in UNORDERED and _matched(one, wanted, thoroughly):
            return True
        if all(_equal(*pair, thoroughly) for pair in zip(one.parts, wanted.parts, strict=True)):
            return True
        if one.kind in ("=", "<", "<="):
            return _proportional(one, wanted)
    plain_pairs = one.kind in INTERVALS and wanted.kind in INTERVALS
    if plain_pairs or not all(map(_is_region, (one, wanted))):
        return False
    return {one.kind, wanted.kind} != {"\\{\\}"} and _sets_equal(one, wanted)


def _is_region(one: Expression) -> bool:
    """Whether an expression may be a set of numbers; {(1, 2)} is one of points."""
    points = one.kind == "\\{\\}" and any(part.kind in INTERVALS for part in one.parts)
    return one.kind in REGIONS and not points


def _matched(one: Expression, wanted: Expression, thoroughly: bool) -> bool:
    left = list(one.parts)
    for part in wanted.parts:
        place = next((n for n, it in enumerate(left) if _equal(it, part, thoroughly)), None)
        if place is None:
            return False
        del left[place]
    return True


def _proportional(one: Expression, wanted: Expression) -> bool:
    """Whether the difference of one relation's sides is a multiple of the other's; of x = 2, which
    is solved, only itself."""
    from sympy import simplify

    if any(part.kind != "scalar" for part in one.parts + wanted.parts):
        return False
    given, accepted = (
        _read(f"( {left.text} ) - ( {right.text} )") for left, right in (one.parts, wanted.parts)
    )
    factor = simplify(given / accepted)
    if any(map(name_of, wanted.parts)) and len(symbols_of(wanted)) == 1:
        return bool(factor == 1 or (factor == -1 and one.kind == "="))
    return bool(factor.is_positive or (factor.is_negative and one.kind == "="))


def _sets_equal(one: Expression, wanted: Expression) -> bool:
    given, accepted = _set(one), _set(wanted)
    return bool(not accepted.is_empty and given.symmetric_difference(accepted).is_empty)


def _set(one: Expression) -> Any:
    """A set of numbers as sympy has it. Raises KeyError for anything else."""
    import sympy

    if one.kind == "\\{\\}":
        return sympy.FiniteSet(*(_read(part.text) for part in one.parts))
    if one.kind in INTERVALS and len(one.parts) == 2:
        low, high = (sympy.simplify(_read(part.text)) for part in one.parts)
        return sympy.Interval(low, high, one.kind[0] == "(", one.kind[1] == ")")
    combined = {
        "\\cup": sympy.Union,
        "\\cap": sympy.Intersection,
        "\\setminus": sympy.Complement,
    }
    return combined[one.kind](*map(_set, one.parts))


def _scalars_equal(one: str, wanted: str, thoroughly: bool) -> bool:
    if one == wanted and not thoroughly:
        return True
    given, accepted = _read(one), _read(wanted)
    return bool(given == accepted) or _vanishes(given - accepted)


def _vanishes(difference: Any) -> bool:
    """Whether an expression is 0: it is simplified only where it is 0 at some points."""
    from sympy import Float, Rational, simplify

    letters = sorted(difference.free_symbols, key=str)
    for number in POINTS if letters else POINTS[:1]:
        values = {one: Rational(number * (3 * n + 8), 17) for n, one in enumerate(letters)}
        found = difference.evalf(15, subs=values, maxn=MOST_DIGITS)
        floats = found.atoms(Float)
        if any(part and part._prec > 1 for part in floats):
            return False  # a precision of 1 is what is left where digits cancel
    return bool(simplify(difference) == 0 if letters else found == 0 or floats)


def _read(text: str) -> Any:
    """LaTeX as sympy has it, with real letters and the imaginary i."""
    from math_verify.parser import parse_latex_cached
    from sympy import I, Symbol

    try:
        found = parse_latex_cached(text)
    except Exception as error:  # noqa: BLE001 - the parser raises Exception itself
        raise UnreadableError(f"{text!r} cannot be read: {error}") from None
    found = found.doit()
    return found.xreplace(
        {
            letter: I if letter.name == "i" else Symbol(letter.name, real=True)
            for letter in found.free_symbols
        }
    )
