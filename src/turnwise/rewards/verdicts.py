"""A verifier's verdict, checked before anything is made of it.

A verifier is a user's code and may return anything. What is not a verdict in every number leaves
the episode without a grade: a success that is a text or NaN would count as one otherwise.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from numbers import Real
from typing import Any

import numpy as np

from turnwise.types import Trajectory, Verdict


class VerdictError(ValueError):
    """A verdict is none; the text says why."""


def checked_verdict(trajectory: Trajectory, verdict: Any) -> Verdict:
    """The verdict on a trajectory with plain numbers: bool and float, one for each turn where they
    are of turns.

    Raises VerdictError for anything else: another type, a success that is neither true nor false, a
    number that is a text, a bool, NaN or infinite, more or fewer numbers than there are turns.
    """
    if not isinstance(verdict, Verdict):
        raise VerdictError(f"{verdict!r} instead of a Verdict")
    if not isinstance(verdict.success, bool | np.bool_):
        raise VerdictError(f"success is {verdict.success!r} instead of True or False")
    turns, given = len(trajectory.turns), verdict.turn_rewards
    checked = replace(
        verdict,
        reward=_number("reward", verdict.reward),
        success=bool(verdict.success),
        parts={
            name: _number(f"part {name}", value)
            for name, value in _table("parts", verdict.parts).items()
        },
        roles={
            name: _number(f"reward of role {name}", value)
            for name, value in _table("roles", verdict.roles).items()
        },
        turn_parts={
            name: _numbers(f"part {name}", values, turns)
            for name, values in _table("turn_parts", verdict.turn_parts).items()
        },
        turn_rewards=None if given is None else _numbers("reward", given, turns, or_none=True),
    )
    if given is None:
        # Then the steps' own rewards stand, which nobody has looked at either.
        steps = [turn.step.reward for turn in trajectory.turns if turn.step is not None]
        for number, reward in enumerate(steps):
            if reward is not None:
                _number(f"reward of turn {number}", reward)
    return checked


def _table(name: str, found: Any) -> Mapping[str, Any]:
    if not isinstance(found, Mapping):
        raise VerdictError(f"{name} is {found!r} instead of numbers by name")
    return found


def _numbers(name: str, found: Any, turns: int, or_none: bool = False) -> list[float]:
    values: Any = found.tolist() if isinstance(found, np.ndarray) else found
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise VerdictError(f"{name}: {found!r} instead of {turns} numbers")
    # An empty one may say that turns have no rewards (`Verdict.turn_rewards`).
    if len(values) != turns and (values or not or_none):
        raise VerdictError(f"{name}: {len(values)} numbers for {turns} turns")
    return [_number(f"{name} of turn {turn}", one) for turn, one in enumerate(values)]


def _number(name: str, found: Any) -> float:
    if isinstance(found, bool | np.bool_) or not isinstance(found, Real):
        raise VerdictError(f"{name} is {found!r} instead of a number")
    number = float(found)
    if not math.isfinite(number):
        raise VerdictError(f"{name} {number} is not a finite number")
    return number
