"""Equality of mathematical expressions, with math-verify (extra `mathematics`), made strict.

math-verify looks for an answer in a text, and takes what it finds last; here a text is one
expression as a whole (`expressions.py`), and has the form of the accepted one: a set for a set, an
equation for an equation, as many parts, no other letters. Only plain expressions reach math-verify,
two at a time, with decimals as fractions, so nothing is rounded. What the language does not have is
equal to itself alone.

An expression can keep sympy busy for ever, so it works in another process, within limits of
processor time and memory. An answer that runs into them is wrong, if the accepted one is compared
with itself within them; else nothing is known, and the episode is ungraded. So it is where the
process ends by itself; where an answer ended it, it does so again.
"""

import functools
import logging
import math
import os
import resource
import signal
import threading
import time
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
    unassigned,
    unit_of,
)
from turnwise_environments.rewards.numeric import CONVERSIONS

CPU_SECONDS = 2.0
SECONDS = 30.0
"""Time that a comparison may wait, on a machine that is busy with others."""
MEMORY = 1 << 30
"""Bytes of address space."""
DIGITS = 50
"""Digits to which two numbers that cannot be simplified are compared."""


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
    wanted = read_expression(accepted, unit_of(accepted))
    if wanted is None:
        return False
    one = _given(answer or "", wanted, unit_of(accepted))
    if one is None:
        return False
    if wanted.kind == "=" and one.kind == "scalar" and wanted.parts[0].text.isalpha():
        wanted = wanted.parts[1]  # 5 will do for x = 5
    fits = one.kind == wanted.kind and len(one.parts) == len(wanted.parts)
    return fits and symbols_of(one) <= symbols_of(wanted) and _compared(one, wanted)


def _given(answer: str, wanted: Expression, unit: str) -> Expression | None:
    """An answer as it is compared: without a unit, and without letters that it is given to."""
    own = unit_of(answer)
    unit = unit or (own if own.split("^")[0] in CONVERSIONS else "")
    value, letters = unassigned(answer)
    named = wanted.kind == "=" or wanted.text.isalpha()  # A = B is not B
    if letters and not named and not letters & symbols_of(wanted):
        answer = value
    one = read_expression(answer, unit)
    if one is None or one.kind != "list" or wanted.kind != "list":
        return one
    freed = [
        part.parts[1] if part.kind == "=" and part.parts[0].text.isalpha() else part
        for part in one.parts
    ]
    return (
        one
        if any(part.kind == "=" for part in wanted.parts)
        else Expression("list", "", tuple(freed))
    )


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


class _TooLong(BaseException):
    """Not an Exception, which sympy catches."""


def prepare() -> None:
    """Get a worker ready: import sympy, then limit the memory."""
    from math_verify import parser

    del parser
    logging.disable()  # that its own deadlines are off, at every call
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGPROF, _stop)


def _stop(number: int, frame: object) -> None:
    raise _TooLong


def compare(one: Expression, wanted: Expression, thoroughly: bool = False) -> bool | None:
    """Whether two expressions are equal, or None where that takes too long; `thoroughly` works out
    what is the same text too. For workers: a single operation that takes too long ends the process.
    What sympy cannot read is equal to nothing else."""
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(
        resource.RLIMIT_CPU, (math.ceil(time.process_time() + 2 * CPU_SECONDS), hard)
    )
    try:
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS, CPU_SECONDS / 4)
        return _equal(one, wanted, thoroughly)
    except _TooLong:
        return None
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _equal(one: Expression, wanted: Expression, thoroughly: bool) -> bool:
    if one.kind != wanted.kind or len(one.parts) != len(wanted.parts):
        return False
    if one.kind == "scalar":
        return _scalars_equal(one.text, wanted.text, thoroughly)
    if one.kind in UNORDERED:
        left = list(one.parts)
        for part in wanted.parts:
            place = next((n for n, it in enumerate(left) if _equal(it, part, thoroughly)), None)
            if place is None:
                return False
            del left[place]
        return True
    if all(_equal(*pair, thoroughly) for pair in zip(one.parts, wanted.parts, strict=True)):
        return True
    if one.kind not in ("=", "<", "<="):
        return False
    given, accepted = (
        f"( {left.text} ) - ( {right.text} )" for left, right in (one.parts, wanted.parts)
    )
    if _scalars_equal(given, accepted, thoroughly):
        return True
    return one.kind == "=" and _scalars_equal(f"- ( {given} )", accepted, thoroughly)


def _scalars_equal(one: str, wanted: str, thoroughly: bool) -> bool:
    if one == wanted and not thoroughly:
        return True
    from math_verify import verify

    try:
        accepted, given = _read(wanted), _read(one)
    except ValueError:
        return False
    return bool(
        verify(
            accepted, given, float_rounding=DIGITS, numeric_precision=DIGITS, timeout_seconds=None
        )
    )


def _read(text: str) -> Any:
    """LaTeX as sympy has it. Raises ValueError where it has nothing."""
    from math_verify.parser import parse_latex_cached

    try:
        return parse_latex_cached(text)
    except Exception as error:  # noqa: BLE001 - the parser raises Exception itself
        raise ValueError(f"{text!r} cannot be read: {error}") from None
