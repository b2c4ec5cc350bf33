"""PrioritySemaphore: how many episodes at once, who is next, and that none is lost."""

import asyncio
from functools import partial

import pytest

from tests.rollout.clockwork import run
from turnwise.rollout.priority_semaphore import PrioritySemaphore


def test_lower_priorities_are_served_first() -> None:
    seats, order = PrioritySemaphore(2), []
    most = under_way = 0

    async def sit(name: str, priority: int) -> None:
        nonlocal most, under_way
        async with seats.held(priority):
            under_way += 1
            most = max(most, under_way)
            order.append(name)
            await asyncio.sleep(1)
            under_way -= 1

    async def work() -> None:
        late = [("a", 1), ("b", 1), ("c", 2), ("d", 1), ("e", 0), ("f", 0)]
        await asyncio.gather(*(sit(*who) for who in late))

    run(work)
    assert order == ["a", "b", "e", "f", "d", "c"]
    assert most == 2


def test_a_free_place_is_taken_without_suspending() -> None:
    async def work() -> None:
        semaphore, seen = PrioritySemaphore(1), []
        asyncio.get_running_loop().call_soon(seen.append, "suspended")
        for _ in range(3):
            async with semaphore.held(0):
                pass
        assert not seen

    run(work)


def test_nothing_runs_between_one_holder_and_the_next() -> None:
    """Lockstep engines count on it: a session opens in the moment in which another closes."""

    async def work() -> list[str]:
        semaphore, seen = PrioritySemaphore(1), list[str]()

        async def hold(name: str) -> None:
            enter, leave = partial(seen.append, f"{name} in"), partial(seen.append, f"{name} out")
            async with semaphore.held(0, enter, leave):
                await asyncio.sleep(1)
                asyncio.get_running_loop().call_soon(seen.append, "other work")

        await asyncio.gather(hold("a"), hold("b"))
        return seen

    assert run(work) == ["a in", "a out", "b in", "other work", "b out", "other work"]


def test_who_is_cancelled_takes_no_seat_with_it() -> None:
    async def work() -> None:
        seats = PrioritySemaphore(1)

        inside = 0

        def enter() -> None:
            nonlocal inside
            inside += 1

        def leave() -> None:
            nonlocal inside
            inside -= 1

        async def sit() -> None:
            async with seats.held(0, enter, leave):
                await asyncio.sleep(1)

        first, waiting, given = (asyncio.create_task(sit()) for _ in range(3))
        await asyncio.sleep(0.5)
        waiting.cancel()
        first.cancel()
        await asyncio.sleep(0)  # the seat is given to the third ...
        given.cancel()  # ... which is cancelled before it can sit down
        await asyncio.gather(first, waiting, given, return_exceptions=True)
        assert inside == 0
        await asyncio.wait_for(sit(), 5)

    run(work)


def test_no_seats_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        PrioritySemaphore(0)
