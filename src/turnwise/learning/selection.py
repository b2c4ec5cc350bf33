"""The groups and trajectories of a batch that the algorithm's filters keep."""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from turnwise.algorithms.algorithm import Algorithm
from turnwise.algorithms.filters import TrajectoryFacts, TurnFacts
from turnwise.types import Group, ToolResult, Trajectory, TrajectoryId, Turn

Member = TypeVar("Member")


def kept_groups(groups: Sequence[Group], algorithm: Algorithm) -> list[Group]:
    """The groups that the filter on groups keeps by their rewards, penalties not counted, and of
    which the filter on trajectories leaves something."""
    rewards = [np.array([member.reward for member in group.graded]) for group in groups]
    kept = algorithm.call("group_filter", rewards)
    return [
        group
        for group, keep in zip(groups, kept, strict=True)
        if keep and kept_members(group, algorithm)
    ]


def selected(groups: Sequence[Group], algorithm: Algorithm) -> frozenset[TrajectoryId]:
    """The trajectories that are in the loss."""
    return frozenset(
        member.id
        for group in kept_groups(groups, algorithm)
        for member in kept_members(group, algorithm)
    )


def shares(members: Sequence[Member], count: int) -> list[list[Member]]:
    """The members of `count` optimizer updates: parts of nearly equal size, in order."""
    places = np.array_split(np.arange(len(members)), count)
    return [[members[place] for place in part] for part in places]


def evenly_mixed(members: Sequence[Member], others: Sequence[Member]) -> list[Member]:
    """Both in their order, the one spread evenly among the other, so that each of several updates
    has its share of both.

    >>> evenly_mixed([1, 2, 3, 4], [-1, -2])
    [1, -1, 2, 3, -2, 4]
    """
    places = [(index + 0.5) / len(row) for row in (members, others) for index in range(len(row))]
    together = [*members, *others]
    return [together[place] for place in sorted(range(len(together)), key=places.__getitem__)]


def kept_members(group: Group, algorithm: Algorithm) -> list[Trajectory]:
    """The graded members that stay in the loss; the others stay in baseline and critic."""
    if algorithm.trajectory_filter == "none":
        return group.graded  # without asking for facts, which take a look at every result
    return [member for member in group.graded if algorithm.call("trajectory_filter", facts(member))]


def selection_metrics(groups: Sequence[Group], algorithm: Algorithm) -> dict[str, float]:
    """The share of graded trajectories left out of the loss, where there is a filter."""
    graded = sum(len(group.graded) for group in groups)
    if algorithm.trajectory_filter == "none" or not graded:
        return {}
    kept = sum(len(kept_members(group, algorithm)) for group in groups)
    return {"batch/left_out": 1 - kept / graded}


def facts(trajectory: Trajectory) -> TrajectoryFacts:
    known: list[ToolResult] = []
    turns = []
    for turn in trajectory.turns:
        results = turn.step.results if turn.step is not None else ()
        turns.append(_turn_facts(turn, results, known))
        known.extend(results)
    return TrajectoryFacts(trajectory.outcome.truncated, turns)


def _turn_facts(
    turn: Turn, results: Sequence[ToolResult], known: Sequence[ToolResult]
) -> TurnFacts:
    action = turn.action
    return TurnFacts(
        acted=bool(action.calls) or action.answer is not None or action.summary,
        failed=bool(results) and not any(result.ok for result in results),
        repeated=bool(results) and all(_among(result, known) for result in results),
    )


def _among(result: ToolResult, known: Sequence[ToolResult]) -> bool:
    """Whether the same call has given the same before."""
    return any(
        result.call.name == other.call.name
        and result.call.arguments == other.call.arguments
        and result.content == other.content
        for other in known
    )
