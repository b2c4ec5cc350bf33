"""Numbers of an episode's turns, measured from what its tools returned and what its state became.

What a policy says of itself is never looked at. Progress is the change of a share of the task that
is done: over an episode it adds up to the share at the end, so that nothing is earned by undoing
something and doing it again. Not here: what the share is of (each environment says).
"""

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeVar

from turnwise.environments.base import Environment
from turnwise.rewards.parts import RewardPart, Scope
from turnwise.tools.tool import tools_of
from turnwise.types import ToolResult, Trajectory, Turn

Seen = TypeVar("Seen")
Cells = Mapping[Any, Hashable]
"""A state as values by place; None is no value."""


def share(description: str) -> RewardPart:
    """A part of an episode from 0 to 1."""
    return RewardPart(0, 1, description)


def gain_part(description: str) -> RewardPart:
    """A part of turns that adds up to 1 at most and is never taken away."""
    return RewardPart(0, 1, description, Scope.TURNS, (0, 1))


def progress_part(description: str) -> RewardPart:
    """A part of turns that adds up to a share, and can be lost again."""
    return RewardPart(-1, 1, description, Scope.TURNS, (0, 1))


def share_of_turn(description: str) -> RewardPart:
    """A part of turns from 0 to 1 each."""
    return RewardPart(0, 1, description, Scope.TURNS)


STATE_PARTS = {
    "progress": progress_part("change of the share of right changes among those wanted or made"),
    "harm": share_of_turn("1 where something was changed into what is not wanted"),
}
REPEATS = share_of_turn("share of the turn's results that were shown before")


def results_of(turn: Turn, tool: str = "") -> list[ToolResult]:
    """The results of a turn's calls that worked, of one tool or of all; none where the environment
    did not reply."""
    results = turn.step.results if turn.step is not None else ()
    return [one for one in results if one.ok and one.call.name == (tool or one.call.name)]


def lines_of(turn: Turn, tool: str) -> list[str]:
    """The lines that a tool gave in a turn."""
    return [line for one in results_of(turn, tool) for line in one.content.split("\n")]


def first_shown(
    wanted: Sequence[Collection[Hashable]], shown: Sequence[Collection[Hashable]]
) -> list[float]:
    """For each turn the share of `wanted` that it shows for the first time.

    Each entry of `wanted` is there as soon as one of its members is.

    >>> first_shown([{"a"}, {"b", "c"}], [["a"], [], ["a", "c"], ["b"]])
    [0.5, 0.0, 0.5, 0.0]
    """
    left, gains = list(wanted), []
    for results in shown:
        missing = [entry for entry in left if not set(entry) & set(results)]
        gains.append((len(left) - len(missing)) / max(len(wanted), 1))
        left = missing
    return gains


def repeats(shown: Sequence[Sequence[Hashable]]) -> list[float]:
    """For each turn the share of its results that were shown before, in it or in earlier turns; 0
    without results.

    >>> repeats([["a", "b"], [], ["b", "c"], ["d", "d"]])
    [0.0, 0.0, 0.5, 0.5]
    """
    known: set[Hashable] = set()
    shares = []
    for results in shown:
        again = 0
        for result in results:
            again += result in known
            known.add(result)
        shares.append(again / max(len(results), 1))
    return shares


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
    """The STATE_PARTS of an episode, from its state at the beginning, the wanted one, and those
    after each turn."""
    return {
        "progress": changes_of([share_of_changes(before, wanted, now) for now in after]),
        "harm": [float(is_harm(one, other, wanted)) for one, other in pairwise([before, *after])],
    }


async def replayed(
    twin: Environment, trajectory: Trajectory, look: Callable[[], Seen]
) -> list[Seen]:
    """Run an episode's calls once more in `twin`, which begins where the episode did, and look
    after each turn.

    For environments whose calls are quick, and do the same each time. Tools that a recipe added
    are left out: they have no part in the state. A call that says something else than it did is
    taken back: a rule held it back, or it was made to fail, and nothing was done.
    """
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
