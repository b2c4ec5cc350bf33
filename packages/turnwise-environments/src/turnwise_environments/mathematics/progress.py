"""Find the results of a problem's solution that an episode's calculations came to, by turns.

A result counts where it was worked out from numbers that were known: those of the problem, results
of earlier calculations, and constants that the solution itself uses. So neither a number that is
typed in as it is, nor a sum that is made up around a guess, is progress. Not here: whether the
answer is right (`rewards/numeric.py`).
"""

import re
from collections.abc import Iterator
from fractions import Fraction

from turnwise.environments.turn_parts import first_shown, results_of
from turnwise.errors import ToolError
from turnwise.types import Trajectory
from turnwise_environments.tools.calculator import Number, evaluate, show

_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")


def derived(trajectory: Trajectory) -> list[float]:
    """For each turn the share of the solution's results that a calculation of it comes to first; 0
    where no solution is known, as in MATH's records."""
    steps = trajectory.task.secret["solution"]
    given = set(_numbers(trajectory.task.prompt))
    results = [number.value for number in map(_worked_out, steps) if number is not None]
    wanted = [value for value in results if value not in given]
    known = given | {number for step in steps for number in _numbers(step)} - set(wanted)
    shown: list[list[Fraction]] = []
    for turn in trajectory.turns:
        found = []
        for result in results_of(turn, "calculator"):
            expression = str(result.call.arguments.get("expression", ""))
            number = _worked_out(expression)
            if number is None or show(number) != result.content:
                continue
            if known.issuperset(_numbers(expression)):
                known |= {number.value, *_numbers(result.content)}
                found.append(number.value)
        shown.append(found)
    return first_shown([[value] for value in wanted], shown)


def _worked_out(expression: str) -> Number | None:
    try:
        return evaluate(expression)
    except ToolError:
        return None


def _numbers(text: str) -> Iterator[Fraction]:
    """The numbers of a text or an expression; a comma between digits groups them."""
    return map(Fraction, _NUMBER.findall(text.replace(",", "")))
