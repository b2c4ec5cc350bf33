"""Answers of mathematics: a number as `numeric.py` compares it, else an expression.

Where the accepted answer is a number, the answer has to be that number, worked out, in its unit;
where it is an expression, a set, an interval, an equation, a matrix, the same in any form
(`symbolic.py`, extra `mathematics`), but for an expression that the question has itself: to repeat
what was to be worked out is no answer.
"""

import re
from collections.abc import Sequence

from turnwise.errors import MissingExtraError
from turnwise.rewards.parts import reward_part
from turnwise.types import Trajectory
from turnwise_environments.rewards.answers import accepted_answers
from turnwise_environments.rewards.expressions import MAX_CHARACTERS, plain, unwrapped
from turnwise_environments.rewards.numeric import CONVERSIONS, matches, read_answer, read_quantity
from turnwise_environments.rewards.stated import members, names, stated, told_number
from turnwise_environments.rewards.symbolic import expressions_match

MIN_ECHO = 3
"""The least characters that are an echo; `x` may be an answer though the question has it."""

_LARGE = re.compile(r"[-+]?\s*\d+\s*(?:!|\^\s*(?!\{?\s*[01]\b)(?:\d+|\{\s*\d+\s*\}))")
"""A power or a factorial, as which large numbers are written; all else has to be worked out."""
MAX_LETTERS = 3
"""Letters behind a number, without a space, that may be a product: `2abc`."""


@reward_part("mathematics", 0, 1)
def mathematics(trajectory: Trajectory) -> float:
    """1 where the answer is an accepted number or expression, in any form of it, else 0.

    The units of a number are those of `secret["units"]`, else that of the accepted answer; `%` is
    a unit that has to be among them, but for an accepted number above 1 without a unit. Expressions
    need the extra `mathematics`.
    """
    task = trajectory.task
    return float(
        any(
            is_right(trajectory.answer, one, task.secret.get("units"), task.prompt)
            for one in accepted_answers(trajectory)
        )
    )


def is_right(
    answer: str | None, accepted: str, units: Sequence[str] | None = None, question: str = ""
) -> bool:
    """Whether an answer is, or states, the accepted number or expression. `units` are those of a
    number, as for `matches`; None for the accepted answer's own. Raises as `expressions_match`."""
    said = stated(answer or "")
    if units is None and is_number(accepted) and not _unit(accepted):
        said = told_number(answer or "") or said
    whole = "=" in accepted or accepted.isalpha() or len(said) > MAX_CHARACTERS
    parts = [said] if whole else members(said)
    parts = parts[1:] if len(parts) > 1 and names(parts[0], accepted) else parts
    right = [_is_right(one, accepted, units, question) for one in parts]
    others = [one for one, found in zip(parts, right, strict=True) if not found]
    return any(right) and all(_is_expression(one, accepted) for one in others)


def _is_right(answer: str, accepted: str, units: Sequence[str] | None, question: str) -> bool:
    if not is_number(accepted):
        return _is_expression(answer, accepted, question)
    wanted, given = read_quantity(accepted), read_answer(answer)
    if given is None and _LARGE.fullmatch(unwrapped(answer)):
        return _is_expression(answer, accepted, question)
    if units is None and wanted is not None and wanted.unit:
        units = [wanted.unit]
    elif units is None and wanted is not None and given is not None and given.unit == "%":
        # GSM8K leaves the sign away; a number up to 1 may be the share itself.
        units = ["%"] if wanted.value > 1 else None
    if given is None or (not units and _has_letters(answer, given.unit)):
        return False
    return (given.unit != "%" or "%" in (units or ())) and matches(answer, accepted, units)


def _is_expression(answer: str, accepted: str, question: str = "") -> bool:
    """Whether an answer is the accepted expression, and no echo. Where the accepted one is a
    number, no expression is without the extra, since such tasks do not need it."""
    if len(answer) > max(MAX_CHARACTERS, len(accepted)) or is_echo(answer, accepted, question):
        return False
    try:
        return expressions_match(answer, accepted)
    except MissingExtraError:
        if is_number(accepted):
            return False
        raise


def _unit(accepted: str) -> str:
    wanted = read_quantity(accepted)
    return "" if wanted is None else wanted.unit


def is_number(accepted: str) -> bool:
    """Whether an accepted answer is a number with at most its unit: `2 m` is, and `2x` is not."""
    wanted = read_quantity(accepted)
    return wanted is not None and not _has_letters(accepted, wanted.unit)


def _has_letters(text: str, unit: str) -> bool:
    """Whether what stands behind a number is letters of algebra: `5x`, `5 x`, `5ab`, `5m`, but not
    `5 m` or `5km`."""
    name = unit.split(" ")[0].rstrip("²³")
    glued = re.search(r"[0-9][a-zA-Z]+[.$]?\s*$", unwrapped(text)) is not None
    if glued:
        return len(name) == 1 or (len(name) <= MAX_LETTERS and name not in CONVERSIONS)
    return len(name) == 1 and name.isalpha() and name not in CONVERSIONS


def is_echo(answer: str, accepted: str, question: str) -> bool:
    """Whether an answer stands in the question, and is not the accepted one to the letter."""
    said, wanted, asked = (
        "".join(plain(text).casefold().split()) for text in (answer, accepted, question)
    )
    return len(said) >= MIN_ECHO and said != wanted and said in asked
