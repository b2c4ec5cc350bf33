"""Oversampling: which are kept, which are cancelled, and what is left of them."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.rollout.clockwork import LIMITS, Versioned, Waiting, run, runner
from turnwise.errors import RunStoppedError
from turnwise.monitor.metrics import rollout_metrics
from turnwise.rollout.collect import independent, oversampled_groups
from turnwise.rollout.runner import RolloutRunner
from turnwise.tools.tool import tool
from turnwise.types import Group, Outcome, Trajectory, Verdict


def collect(
    environment: Waiting, size: int, extra: int, seats: int = 100, **limits: Any
) -> tuple[list[Group], float]:
    """The groups, and how long it took."""
    engine = Versioned()
    made = runner(engine, environment, seats)
    made = replace(made, limits=LIMITS.model_copy(update=limits))

    async def work() -> tuple[list[Group], float]:
        groups = await oversampled_groups(
            made, environment.tasks("train"), size, 0, "t", extra=extra
        )
        assert not engine.sessions
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return groups, asyncio.get_running_loop().time()

    return run(work)


def seconds(environment: Waiting) -> dict[str, list[float]]:
    """When all of eight episodes of each task end by themselves."""
    made: RolloutRunner = runner(Versioned(), environment, 100)
    run(lambda: independent(made, environment.tasks("train"), 8, 0, "t"))
    found: dict[str, list[float]] = {}
    for task, when in environment.log:
        found.setdefault(task, []).append(when)
    return found


def test_the_first_to_finish_are_kept_in_their_order() -> None:
    """Those that are cancelled close their environments as the others do."""
    environment = Waiting()
    groups, ended = collect(environment, 5, extra=3)
    assert Counter(task for task, _ in environment.log) == dict.fromkeys(environment.names, 8)
    times = seconds(Waiting())
    for group in groups:
        assert len(group.trajectories) == 5
        assert len(group.oversampled) == 3
        numbers = [member.episode for member in group.trajectories]
        assert numbers == sorted(numbers)
        assert all(member.reward == 1.0 for member in group.trajectories)
        for left in group.oversampled:
            assert (left.outcome, left.reward) == (Outcome.CANCELLED, None)
    assert ended == pytest.approx(max(sorted(when)[4] for when in times.values()))
    assert ended < max(max(when) for when in times.values())


class AtOnce(Waiting):
    """All episodes end at the same moment."""

    @tool
    async def wait(self) -> str:
        """Wait."""
        return "done"


def test_of_those_that_end_together_the_first_are_kept() -> None:
    groups, _ = collect(AtOnce(), 5, extra=3)
    for group in groups:
        assert [member.episode for member in group.trajectories] == [0, 1, 2, 3, 4]


def test_episodes_in_excess_are_in_no_statistic_but_their_count() -> None:
    groups, _ = collect(Waiting(), 5, extra=3)
    found = rollout_metrics(groups)
    bare = rollout_metrics([Group(group.id, group.trajectories) for group in groups])
    assert found == bare | {
        "oversampled/episodes": 3.0 * len(groups),
        "oversampled/tokens_sampled": found["oversampled/tokens_sampled"],
    }
    assert found["oversampled/tokens_sampled"] > 0
    assert found["rollout/ungraded"] == 0.0


def test_a_hung_episode_costs_one_of_them_and_no_time() -> None:
    environment = Waiting(hanging=["task 0"])
    groups, ended = collect(environment, 2, extra=6)
    assert ended < environment.tool_deadline
    assert all(len(group.graded) == 2 for group in groups)


class Unverifiable(Waiting):
    """The verifier fails for half of the episodes."""

    async def verify(self, trajectory: Trajectory) -> Verdict:
        if trajectory.episode % 2:
            raise ValueError("the verifier fails")
        return await super().verify(trajectory)


def test_who_ends_without_a_grade_is_replaced_and_counted() -> None:
    groups, _ = collect(Unverifiable(), 3, extra=5)
    assert all(len(group.graded) == 3 for group in groups)
    ungraded = [m for group in groups for m in group.trajectories if m.reward is None]
    assert ungraded
    assert {member.outcome for member in ungraded} == {Outcome.GRADER_ERROR}
    assert rollout_metrics(groups)["rollout/ungraded"] == len(ungraded)
    groups, _ = collect(Unverifiable(), 3, extra=1)
    assert all(len(group.graded) == 2 for group in groups)  # no more than there are
    with pytest.raises(RunStoppedError, match="could not be graded"):
        collect(Unverifiable(), 3, extra=5, max_ungraded_share=0.1)


def test_seats_bound_episodes_in_excess_too() -> None:
    groups, _ = collect(Waiting(), 2, extra=2, seats=1)
    members: Sequence[Trajectory] = [m for group in groups for m in group.oversampled]
    assert len(members) == 2 * len(groups)
    assert not any(member.tokens.mask.any() for member in members)  # no turn was begun
