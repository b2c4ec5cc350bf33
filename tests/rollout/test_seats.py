"""Seats: how many episodes at once, who is next, and that none is lost."""

import asyncio

import pytest

from tests.rollout.clockwork import run
from turnwise.rollout.seats import Seats


def test_earlier_occasions_are_seated_first() -> None:
    seats, order = Seats(2), []
    most = under_way = 0

    async def sit(name: str, occasion: int) -> None:
        nonlocal most, under_way
        async with seats.taken(occasion):
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


def test_a_free_seat_is_taken_without_suspending() -> None:
    """Lockstep engines count on it: a session opens in the moment in which another closes."""

    async def work() -> None:
        seats, seen = Seats(1), []
        asyncio.get_running_loop().call_soon(seen.append, "suspended")
        for _ in range(3):
            async with seats.taken(0):
                pass
        assert not seen

    run(work)


def test_who_is_cancelled_takes_no_seat_with_it() -> None:
    async def work() -> None:
        seats = Seats(1)

        async def sit() -> None:
            async with seats.taken(0):
                await asyncio.sleep(1)

        first, waiting, given = (asyncio.create_task(sit()) for _ in range(3))
        await asyncio.sleep(0.5)
        waiting.cancel()
        first.cancel()
        await asyncio.sleep(0)  # the seat is given to the third ...
        given.cancel()  # ... which is cancelled before it can sit down
        await asyncio.gather(first, waiting, given, return_exceptions=True)
        await asyncio.wait_for(sit(), 5)

    run(work)


def test_no_seats_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Seats(0)
