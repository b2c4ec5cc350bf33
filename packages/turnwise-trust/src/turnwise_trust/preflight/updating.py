"""An update's time, measured by making one of what was played.

Rewards are set to 0 and 1 in turn, so that there is something to learn from whatever the episodes
came to. The weights are moved, so nothing is played after it. An update that takes too long is
given up; a shorter one tells the time then.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from turnwise.api import estimate, make_learner
from turnwise.errors import ConfigError, NotSupportedError
from turnwise.parts.components import Components
from turnwise.types import Group, Trajectory
from turnwise_trust.preflight.bounding import TimeUp, within

SECONDS = 25.0
"""Time for the second update, which is of as many groups as fit in."""


@dataclass(frozen=True)
class Update:
    """The time of a step's update; None where none could be made."""

    seconds: float | None
    note: str


def measure_update(components: Components, groups: Sequence[Group], most: float) -> Update:
    """Measure a step's update within `most` seconds, the making of the learner included."""

    def begin() -> Callable[[Sequence[Group]], object]:
        learner = make_learner(components)
        return lambda chosen: learner.update(chosen, estimate(components, learner, chosen))

    return timed(begin, groups, components.recipe.train.tasks_per_step, most)


def timed(
    begin: Callable[[], Callable[[Sequence[Group]], object]],
    groups: Sequence[Group],
    step: int,
    most: float,
) -> Update:
    """Update on two episodes, then on as many of a step's groups as there is time for; the time of
    a step is in proportion to the tokens. `begin` makes what updates."""
    usable = [one for one in map(_rewarded, groups) if len(one.graded) > 1]
    if not usable:
        return Update(None, "there is no group to learn from")
    each, end = _tokens(usable) / len(usable), time.monotonic() + most
    chosen: Sequence[Group] = [replace(usable[0], trajectories=usable[0].trajectories[:2])]
    made: list[tuple[float, Sequence[Group]]] = []
    try:
        with within(most):
            update = begin()
            while chosen:
                begun = time.monotonic()
                update(chosen)
                made.append((time.monotonic() - begun, chosen))
                chosen = usable[: _fit(made, min(SECONDS, end - time.monotonic()), each, step)]
    except (ConfigError, NotSupportedError) as error:
        return Update(None, f"it was not measured: {error}")
    except TimeUp:
        if not made:
            return Update(None, f"none ended within {most:.0f} s; --seconds gives it more")
    seconds, chosen = made[-1]
    whole = len(made) > 1 and len(chosen) == step
    note = "measured" if whole else f"from {_tokens(chosen):,} tokens; rather less at once"
    return Update(seconds * step * each / _tokens(chosen), note)


def _fit(made: Sequence[tuple[float, Sequence[Group]]], left: float, each: float, step: int) -> int:
    """The groups of a second update, by the time of the first, which is slower than others."""
    ((seconds, chosen), *more) = made
    return 0 if more else max(0, min(step, int(left / seconds * _tokens(chosen) / each)))


def _tokens(groups: Sequence[Group]) -> int:
    return sum(len(one.tokens) for group in groups for one in group.trajectories)


def _rewarded(group: Group) -> Group:
    """The group with rewards of 0 and 1 in turn."""
    members = [_with_reward(one, place % 2) for place, one in enumerate(group.graded)]
    return replace(group, trajectories=tuple(members))


def _with_reward(one: Trajectory, reward: float) -> Trajectory:
    assert one.verdict is not None  # it is graded
    return replace(one, verdict=replace(one.verdict, reward=float(reward)))
