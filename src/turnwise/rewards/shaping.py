"""Potential-based shaping: rewards of turns that leave the best policies what they are.

    @potential("closeness", 0, 1)
    def closeness(trajectory: Trajectory) -> Sequence[float]:
        \"\"\"Share of the way that lies behind, before each turn.\"\"\"

With a potential Phi of states, the reward of a turn from s to s' is F = gamma Phi(s') - Phi(s),
where Phi of the end is 0: then every policy's return changes by -Phi of the first state, and by
nothing else. Source: Ng, Harada and Russell 1999, theorem 1. A bonus for reaching a state, without
the subtraction, has no such promise: an agent may go there again and again.

All members of a group begin in one state, so estimators that compare whole episodes with each other
see no difference; those that give turns their own credit do. Not here: potentials, which are an
environment's own.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

from turnwise.ranges import Share
from turnwise.rewards.parts import Scope, reward_part

Potential = Callable[..., Sequence[float]]


def shaping_rewards(potentials: Sequence[float], gamma: float = 1.0) -> list[float]:
    """F of each turn, from the potentials of the states before each turn, first to last.

    >>> shaping_rewards([0.5, 0.75], gamma=1.0)
    [0.25, -0.75]
    """
    after = [*potentials, 0.0][1:]
    return [gamma * new - old for old, new in zip(potentials, after, strict=True)]


def potential(
    name: str, low: float, high: float, gamma: Share = 1.0
) -> Callable[[Potential], Potential]:
    """Declare the decorated function, which gives a number of `low` to `high` for the state before
    each turn, as a part of turns: its shaping rewards. `gamma` is the discount of the returns that
    are maximised; without discount, a part's sum over an episode is -Phi of its first state."""

    def declare(function: Potential) -> Potential:
        @functools.wraps(function)
        def shaped(*arguments: Any, **options: Any) -> list[float]:
            return shaping_rewards(function(*arguments, **options), gamma)

        lowest, highest = gamma * min(low, 0.0) - high, gamma * max(high, 0.0) - low
        total = (min(-high, 0.0), max(-low, 0.0)) if gamma == 1.0 else None
        return reward_part(name, lowest, highest, Scope.TURNS, total)(shaped)

    return declare
