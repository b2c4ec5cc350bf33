"""A part's numbers for an episode or a group, checked before anything is made of them.

A function may raise, return anything, or never end: then there is no number, which is never 0.
"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from numbers import Real
from typing import Any

import numpy as np

from turnwise.errors import DeadlineError, located
from turnwise.interrupt import ANYTHING, calls_user_code, raise_cancelled
from turnwise.rewards.parts import RewardPart, Scope, reward_part
from turnwise.tools import tool
from turnwise.types import Trajectory

SLACK = 1e-9
"""The excess over a part's range that rounding can be."""


class PartError(Exception):
    """A part has no number for an episode, which is ungraded then; the text says why."""


async def measured(
    name: str,
    part: RewardPart,
    function: Callable[[Any], Any],
    subject: Any,
    count: int | None = None,
) -> Any:
    """The number of a part, or `count` numbers where that is given, of which those of a group can
    be None. A plain `function`, which has its options already, runs in a thread of its own; the
    caller keeps a deadline.

    Raises PartError where the function raises, or returns anything else.
    """
    try:
        reported = part.function is None
        found = function(subject) if reported else await called(function, subject)
        return _number(found, part) if count is None else _numbers(found, part, count)
    except PartError as error:
        raise PartError(f"reward part {name}: {error}") from error


def reported_number(name: str, scope: Scope, trajectory: Trajectory) -> Any:
    """Find what the environment's verdict has under this name; PartError without it."""
    assert trajectory.verdict is not None  # it is judged
    found: Mapping[str, Any] = trajectory.verdict.parts
    if scope == Scope.TURNS:
        found = trajectory.verdict.turn_parts
    if name not in found:
        there = ", ".join(sorted(found)) or "it has none"
        raise PartError(f"the environment's verdict is without it; its parts: {there}")
    return found[name]


@reward_part("environment")
def environment(trajectory: Trajectory) -> float:
    """The environment's own reward of the outcome."""
    assert trajectory.verdict is not None  # it is judged
    return trajectory.verdict.reward


@reward_part("steps", scope=Scope.TURNS)
def steps(trajectory: Trajectory) -> list[float]:
    """The environment's own rewards of the turns, 0 for a turn that has none."""
    rewards = trajectory.turn_rewards
    return [0.0] * len(trajectory.turns) if rewards is None else rewards.tolist()


@calls_user_code
async def called(function: Callable[[Any], Any], subject: Any) -> Any:
    """Call a function that may take for ever: nothing can end its thread, but everything else goes
    on, and the program does not wait for it at its end."""
    try:
        return await tool.called(partial(function, subject))
    except (PartError, DeadlineError):
        raise
    except ANYTHING as error:
        raise_cancelled(error)
        raise PartError(located(error)) from error


def _numbers(found: Any, part: RewardPart, count: int) -> tuple[float | None, ...]:
    if isinstance(found, np.ndarray):
        found = found.tolist()
    if not isinstance(found, list | tuple):
        raise PartError(f"{found!r} instead of {count} numbers")
    if len(found) != count:
        raise PartError(f"{len(found)} numbers instead of {count}")
    of_group = part.scope == Scope.GROUP
    return tuple(None if of_group and one is None else _number(one, part) for one in found)


def _number(found: Any, part: RewardPart) -> float:
    if isinstance(found, bool) or not isinstance(found, Real):
        raise PartError(f"{found!r} instead of a number")
    try:
        number = float(found)
    except OverflowError:
        raise PartError("it is too large for a number") from None
    if not math.isfinite(number):
        raise PartError(f"{number} is not a finite number")
    if not part.low - SLACK <= number <= part.high + SLACK:
        raise PartError(f"{number:g} is outside of its range, {part.low:g} to {part.high:g}")
    return number
