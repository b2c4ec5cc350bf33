"""Potential-based shaping: rewards of turns that leave the best policies what they are.

A recipe needs no Python where the environment reports the change of a share of the task that is
done (`progress`, `gain`): the part `shaping` takes that share as the potential.

    [reward.parts.shaping]
    weight = 0.2
    options = { of = "gain" }

One's own is a function:

    @potential("closeness", 0, 1)
    def closeness(trajectory: Trajectory) -> Sequence[float]:
        \"\"\"Share of the way that lies behind, before each turn.\"\"\"

With a potential Phi of states, the reward of a turn from s to s' is F = gamma Phi(s') - Phi(s),
where Phi of the end is 0: then every policy's return changes by -Phi of the first state, and by
nothing else. Source: Ng, Harada and Russell 1999, theorem 1. A bonus for reaching a state, without
the subtraction, has no such promise: an agent may go there again and again.

All members of a group begin in one state, so estimators that compare whole episodes with each other
see no difference; those that give turns their own credit do.
"""

import functools
import math
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

from turnwise.ranges import Share
from turnwise.rewards.measuring import SLACK, PartError, reported_number
from turnwise.rewards.parts import Scope, reward_part
from turnwise.types import Trajectory

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


def _total(of: str = "", gamma: float = 1.0) -> tuple[float, float]:
    """The range of the sum of `shaping` over an episode's turns: the first potential is 0, and with
    a discount each one on the way takes (1 - gamma) of itself off."""
    del of
    return (0.0, 0.0) if gamma == 1.0 else (-math.inf, 0.0)


@reward_part("shaping", -1, 1, Scope.TURNS, total_of=_total, reads="of")
def shaping(trajectory: Trajectory, of: str = "progress", gamma: Share = 1.0) -> list[float]:
    """Potential-based shaping by the share of the task that is done, as the environment reports it.

    The potential of a state is the sum of the numbers of turns before it that the environment
    reports under the name `of`, a share from 0 to 1; it is 0 at the beginning and at the end of the
    episode. So what turns gained is taken back by the last one, and the best policies stay what
    they are (Ng, Harada and Russell 1999, theorem 1). `gamma` is the discount of the returns.
    """
    changes = reported_number(of, Scope.TURNS, trajectory)
    potentials = list(accumulate(changes[:-1], initial=0.0)) if len(changes) else []
    for potential_now in potentials:
        if not -SLACK <= potential_now <= 1 + SLACK:
            raise PartError(
                f"{of} adds up to {potential_now:g}, and a share is 0 to 1: give options.of a part "
                "that reports changes of a share, such as progress"
            )
    return shaping_rewards([min(max(one, 0.0), 1.0) for one in potentials], gamma)
