"""Progress of an episode's turns, measured from what its state became.

Progress is the change of a share of the task that is done: over an episode it adds up to the share
at the end, so that nothing is earned by undoing something and doing it again.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeVar

from turnwise.environments.base import Environment
from turnwise.environments.turn_parts import results_of, share_of_turn
from turnwise.rewards.parts import RewardPart, Scope
from turnwise.tools.tool import tools_of
from turnwise.types import Trajectory

Seen = TypeVar("Seen")
Cells = Mapping[Any, Hashable]
"""A state as values by place; None is no value."""


def progress_part(description: str) -> RewardPart:
    """A part of turns that adds up to a share, and can be lost again."""
    return RewardPart(-1, 1, description, Scope.TURNS, (0, 1))


STATE_PARTS = {
    "progress": progress_part("change of the share of right changes among those wanted or made"),
    "harm": share_of_turn("1 where something was changed into what is not wanted"),
}


def changes_of(shares: Sequence[float]) -> list[float]:
    """The changes between shares that begin at 0.

    >>> changes_of([0.5, 0.5, 0.0])
    [0.5, 0.0, -0.5]
    """
    return [after - before for before, after in pairwise([0.0, *shares])]


def cells_of(state: Mapping[str, Any], place: tuple[str, ...] = ()) -> dict[tuple[str, ...], str]:
    """The values at the ends of nested tables, by place, as text: 1 and True differ there.

    >>> cells_of({"a": {"x": 1, "y": [2]}, "b": {}})
    {('a', 'x'): '1', ('a', 'y'): '[2]'}
    """
    found: dict[tuple[str, ...], str] = {}
    for key, value in state.items():
        if isinstance(value, Mapping):
            found |= cells_of(value, (*place, key))
        else:
            found[*place, key] = repr(value)
    return found


def share_of_changes(before: Cells, wanted: Cells, now: Cells) -> float:
    """The wanted changes that were made, as a share of all that are wanted or were made (Jaccard):
    making every change that there could be earns next to nothing. 0 where none is wanted.

    >>> share_of_changes({"a": 1, "b": 1}, {"a": 2, "b": 1}, {"a": 2, "b": 2})
    0.5
    """
    asked, made = _changed(before, wanted), _changed(before, now)
    right = (asked & made) - _changed(wanted, now)
    return len(right) / len(asked | made) if asked else 0.0


def is_harm(before: Cells, after: Cells, wanted: Cells) -> bool:
    """Whether something was changed into what is not wanted.

    >>> is_harm({"a": 1}, {"a": 3}, {"a": 2}), is_harm({"a": 1}, {"a": 2}, {"a": 2})
    (True, False)
    """
    return bool(_changed(before, after) & _changed(after, wanted))


def _changed(one: Cells, other: Cells) -> set[Hashable]:
    """The places whose values differ, or that only one of them has."""
    return {place for place in {**one, **other} if one.get(place) != other.get(place)}


def state_parts(before: Cells, wanted: Cells, after: Sequence[Cells]) -> dict[str, list[float]]:
    """The STATE_PARTS of an episode: its first state, the wanted one, those after each turn."""
    return {
        "progress": changes_of([share_of_changes(before, wanted, now) for now in after]),
        "harm": [float(is_harm(one, other, wanted)) for one, other in pairwise([before, *after])],
    }


async def replayed(
    twin: Environment, trajectory: Trajectory, look: Callable[[], Seen]
) -> list[Seen]:
    """Run an episode's calls once more in `twin`, which begins where the episode did, and look
    after each turn. Tools that a recipe added are left out: they have no part in the state. A call
    that says something else than it did is taken back: a rule held it back, or it was made to fail,
    and nothing was done."""
    own = tools_of(twin)
    seen: list[Seen] = []
    for turn in trajectory.turns:
        done = not seen
        for result in results_of(turn):
            if result.call.name not in own:
                continue
            state = twin.snapshot()
            again = await twin._run(result.call)
            if again.content == result.content:
                done = True
            else:
                twin.restore(state)
        seen.append(look() if done else seen[-1])
    return seen
