"""The time of an update, measured by making one of what was played.

Rewards are set to 0 and 1 in turn, so that there is something to learn from whatever the episodes
came to. The weights are moved, so nothing is played after it.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from turnwise.api import estimate, make_learner
from turnwise.errors import ConfigError, NotSupportedError
from turnwise.parts.components import Components
from turnwise.types import Group, Trajectory

SECONDS = 25.0
"""Time for the second update, which is of as many groups as fit in."""


@dataclass(frozen=True)
class Update:
    """The time of a step's update; None where none could be made."""

    seconds: float | None
    note: str


def measure_update(components: Components, groups: Sequence[Group]) -> Update:
    """Update on two episodes, then on as many of a step's groups as there is time for; the time of
    a step is in proportion to the tokens."""
    usable = [one for one in map(_rewarded, groups) if len(one.graded) > 1]
    if not usable:
        return Update(None, "there is no group to learn from")
    try:
        learner = make_learner(components)
    except (ConfigError, NotSupportedError) as error:
        return Update(None, f"it was not measured: {error}")

    def update(chosen: Sequence[Group]) -> float:
        begun = time.monotonic()
        learner.update(chosen, estimate(components, learner, chosen))
        return time.monotonic() - begun

    step = components.recipe.train.tasks_per_step
    each = _tokens(usable) / len(usable)
    first = [replace(usable[0], trajectories=usable[0].trajectories[:2])]
    seconds, chosen = update(first), first
    fit = min(step, len(usable), int(SECONDS / seconds * _tokens(first) / each))
    if fit:  # the first update is slower than others, so there is time for these
        chosen = usable[:fit]
        seconds = update(chosen)
    note = "measured" if fit == step else f"from {_tokens(chosen):,} tokens; rather less at once"
    return Update(seconds * step * each / _tokens(chosen), note)


def _tokens(groups: Sequence[Group]) -> int:
    return sum(len(one.tokens) for group in groups for one in group.trajectories)


def _rewarded(group: Group) -> Group:
    """The group with rewards of 0 and 1 in turn."""
    members = [_with_reward(one, place % 2) for place, one in enumerate(group.graded)]
    return replace(group, trajectories=tuple(members))


def _with_reward(one: Trajectory, reward: float) -> Trajectory:
    assert one.verdict is not None  # it is graded
    return replace(one, verdict=replace(one.verdict, reward=float(reward)))
