"""Numbers of an episode's turns, measured from what its tools returned.

What a policy says of itself is never looked at.
"""

from collections.abc import Collection, Hashable, Sequence

from turnwise.rewards.parts import RewardPart, Scope
from turnwise.types import ToolResult, Turn


def share(description: str) -> RewardPart:
    """A part of an episode from 0 to 1."""
    return RewardPart(0, 1, description)


def gain_part(description: str) -> RewardPart:
    """A part of turns that adds up to 1 at most and is never taken away."""
    return RewardPart(0, 1, description, Scope.TURNS, (0, 1))


def share_of_turn(description: str) -> RewardPart:
    """A part of turns from 0 to 1 each."""
    return RewardPart(0, 1, description, Scope.TURNS)


REPEATS = share_of_turn("share of the turn's results that were shown before")


def results_of(turn: Turn, tool: str = "") -> list[ToolResult]:
    """The results of a turn's calls that worked, of one tool or of all."""
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
