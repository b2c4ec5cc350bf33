"""Sampling ahead: the bound on staleness, what is begun when, and what is left when it ends."""

import asyncio
import random
import threading
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.graded import graded
from tests.rollout.clockwork import Versioned, Waiting, run, runner
from turnwise.errors import RunStoppedError
from turnwise.rollout.order import tasks_of_step
from turnwise.rollout.pipeline import (
    Pipeline,
    Played,
    beside_sampling,
    check_staleness,
    staleness_metrics,
    staleness_of,
)
from turnwise.tokens import Segment, Source, Tokens
from turnwise.types import Group, Outcome, Trajectory

TASKS_PER_STEP, GROUP_SIZE = 2, 3


async def train(
    max_staleness: int,
    steps: int,
    seats: int,
    seed: int,
    environment: Waiting | None = None,
    engine: Versioned | None = None,
    update_seconds: float = 1.0,
) -> list[list[Group]]:
    """The loop of the trainer; an update takes a random time. Returns each step's groups."""
    engine, environment = engine or Versioned(), environment or Waiting()
    chance, made = random.Random(seed), runner(engine, environment, seats)
    tasks = environment.tasks("train")

    async def play(step: int) -> Played:
        chosen = tasks_of_step(tasks, step, TASKS_PER_STEP, seed)
        own = replace(made, priority=step)
        return Played(await own.collect(chosen, GROUP_SIZE, seed, f"train/{step}"), 0.0, 1)

    pipeline = Pipeline(range(steps), max_staleness)
    found = []
    try:
        for step in range(steps):
            for due in pipeline.admit(step):
                pipeline.add(due, asyncio.create_task(play(due)))
            await asyncio.sleep(0)
            under_way = {int(session.partition("-")[2]) for session in engine.sessions}
            assert under_way <= set(range(step, step + max_staleness + 1))
            found.append((await pipeline.step(step)).groups)
            await asyncio.sleep(chance.expovariate(1 / update_seconds))
            await engine.load_weights({}, step + 1)
    finally:
        await pipeline.close()
    assert not engine.sessions
    assert asyncio.all_tasks() == {asyncio.current_task()}
    return found


@pytest.mark.long
@settings(max_examples=15)
@given(
    max_staleness=st.integers(0, 4),
    seats=st.integers(1, 40),
    seed=st.integers(0, 2**32),
    update_seconds=st.sampled_from([0.01, 1.0, 10.0]),
)
def test_no_token_is_older_than_the_bound_and_every_task_is_played_when_it_is_due(
    max_staleness: int, seats: int, seed: int, update_seconds: float
) -> None:
    steps = 6
    found = run(lambda: train(max_staleness, steps, seats, seed, update_seconds=update_seconds))
    tasks = Waiting().tasks("train")
    for step, groups in enumerate(found):
        check_staleness(groups, step, max_staleness)
        due = tasks_of_step(tasks, step, TASKS_PER_STEP, seed)
        assert [group.id for group in groups] == [f"train/{step}/{task.id}" for task in due]
        members = [member for group in groups for member in group.trajectories]
        assert len(members) == TASKS_PER_STEP * GROUP_SIZE
        for member in members:
            assert member.outcome == Outcome.SUCCESS
            assert (np.diff(member.tokens.version[member.tokens.mask]) >= 0).all()


def test_the_bound_is_reached_and_weights_change_within_episodes() -> None:
    found = run(lambda: train(2, 6, seats=40, seed=0))
    oldest = [int(staleness_of(groups, step).max()) for step, groups in enumerate(found)]
    assert oldest[:2] == [0, 1]
    assert max(oldest) == 2
    members = [m for groups in found for group in groups for m in group.trajectories]
    assert any(len(set(member.tokens.version[member.tokens.mask])) > 1 for member in members)


def test_sampling_ahead_hides_slow_episodes() -> None:
    """Tools with a heavy tail, updates of a second: the seconds that eight steps take."""

    async def seconds(max_staleness: int) -> float:
        await train(max_staleness, 8, seats=100, seed=1)
        return asyncio.get_running_loop().time()

    one_by_one, ahead = (run(lambda s=s: seconds(s)) for s in (0, 3))
    assert ahead < one_by_one / 2


def test_a_hung_tool_stalls_nobody() -> None:
    """Until its deadline its own update waits; all that may be sampled meanwhile is."""
    environment = Waiting(hanging=[f"task {number}" for number in range(6)])
    environment.tool_deadline = 30.0
    found = run(lambda: train(2, 3, seats=100, seed=3, environment=environment))
    members = [m for groups in found for group in groups for m in group.trajectories]
    hung = [member for member in members if member.outcome == Outcome.AGENT_RESOURCE_LIMIT]
    assert hung
    assert all("no result within 30 s" in member.problem for member in hung)
    assert all(member.reward is not None and member.turns[-1].action.calls for member in hung)
    first = sorted(when for _, when in environment.log)[: len(members) - len(hung)]
    assert max(first) < 30.0  # of all three steps


def test_one_that_fails_ends_the_run_when_its_turn_comes() -> None:
    async def play(step: int) -> Played:
        if step == 1:
            raise RunStoppedError("too many ungraded")
        return Played([], 0.0, 1)

    async def work() -> None:
        pipeline = Pipeline(range(3), max_staleness=1)
        for step in pipeline.admit(0):
            pipeline.add(step, asyncio.create_task(play(step)))
        assert (await pipeline.step(0)).groups == []
        for step in pipeline.admit(1):
            pipeline.add(step, asyncio.create_task(play(step)))
        with pytest.raises(RunStoppedError):
            await pipeline.step(1)
        await pipeline.close()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(work)


@pytest.mark.parametrize("after", [0.0, 0.05, 2.0, 7.3])
def test_a_cancelled_run_leaves_nothing_behind(after: float) -> None:
    engine, environment = Versioned(), Waiting()

    async def work() -> None:
        running = asyncio.create_task(
            train(2, 20, seats=5, seed=0, environment=environment, engine=engine)
        )
        await asyncio.sleep(after)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert not engine.sessions

    run(work)


async def test_work_beside_sampling_is_ended_even_when_cancelled() -> None:
    done: list[str] = []
    begun, cancelled = threading.Event(), threading.Event()

    def slow() -> str:
        begun.set()
        cancelled.wait(60)
        done.append("learned")
        return "result"

    async def step() -> None:
        done.append(await beside_sampling(slow))
        done.append(str(asyncio.current_task().cancelling()))
        await asyncio.sleep(10)
        done.append("never")

    task = asyncio.create_task(step())
    while not begun.is_set():
        await asyncio.sleep(0.001)
    task.cancel()
    cancelled.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done == ["learned", "result", "1"]


async def test_what_fails_beside_sampling_fails_where_it_was_asked_for() -> None:
    def broken() -> None:
        raise ArithmeticError("a bug")

    with pytest.raises(ArithmeticError):
        await beside_sampling(broken)


def trajectory(versions: list[int], judged: bool = True) -> Trajectory:
    tokens = Tokens.empty().with_segments([Segment([0, 0], Source.TOOL)], 0)
    for version in versions:
        tokens = tokens.with_sampled([1], [-1.0], version, 0)
    return graded(judged or None, tokens=tokens)


def test_staleness_counts_sampled_tokens_of_graded_members() -> None:
    members = trajectory([3, 4, 5]), trajectory([0], judged=False), trajectory([5])
    group = Group("g", members)
    assert staleness_of([group], 5).tolist() == [2, 1, 0, 0]
    assert staleness_metrics([group], 5) == {"staleness/mean": 0.75, "staleness/max": 2.0}
    assert staleness_metrics([Group("g", (trajectory([1], judged=False),))], 5) == {}
    check_staleness([group], 5, 2)
    check_staleness([], 5, 0)
    for step, bound in ((5, 1), (4, 4)):  # too old; newer than the weights
        with pytest.raises(RuntimeError, match="updates old"):
            check_staleness([group], step, bound)
