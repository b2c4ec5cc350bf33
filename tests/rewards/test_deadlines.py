"""Deadlines of work that is done at once: each end gives the others as long again."""

import asyncio
import threading
from collections.abc import Awaitable
from typing import Any

import pytest

from tests.rollout.clockwork import run
from turnwise.rewards.deadlines import Deadlines, alone, deadline, uncounted


async def queued(server: asyncio.Lock, seconds: float) -> float:
    """Work that one server does, so many seconds of it; returns when it ended."""
    async with server:
        await asyncio.sleep(seconds)
        return asyncio.get_running_loop().time()


def together(*pieces: float) -> list[Any]:
    """The ends of pieces of work of these lengths, of one server, with 10 seconds each."""

    async def work() -> list[Any]:
        server, deadlines = asyncio.Lock(), Deadlines(10.0)
        waiting: list[Awaitable[float]] = [
            deadlines.within(queued(server, seconds)) for seconds in pieces
        ]
        return await asyncio.gather(*waiting, return_exceptions=True)

    return run(work)


def test_work_that_waits_for_others_is_not_late() -> None:
    assert together(8.0, 8.0, 8.0) == pytest.approx([8.0, 16.0, 24.0])


def test_work_that_is_too_slow_is_ended_and_gives_no_time_to_others() -> None:
    first, second = together(100.0, 1.0)
    assert isinstance(first, TimeoutError)
    assert isinstance(second, TimeoutError), "both had 10 seconds without any end"
    done, late, after = together(4.0, 100.0, 1.0)
    assert done == pytest.approx(4.0)
    assert isinstance(late, TimeoutError)
    assert isinstance(after, TimeoutError)


def test_work_that_fails_has_ended_too() -> None:
    async def failing(server: asyncio.Lock) -> float:
        await queued(server, 8.0)
        raise ValueError("no numbers")

    async def work() -> list[Any]:
        server, deadlines = asyncio.Lock(), Deadlines(10.0)
        pieces = failing(server), queued(server, 8.0)
        return await asyncio.gather(*map(deadlines.within, pieces), return_exceptions=True)

    first, second = run(work)
    assert isinstance(first, ValueError)
    assert second == pytest.approx(16.0)


@pytest.mark.parametrize(
    ("waits", "late"), [((100.0, 100.0), False), ((), False), ((100.0,), True)]
)
def test_waiting_does_not_count_against_a_deadline(waits: tuple[float, ...], late: bool) -> None:
    async def work() -> list[Any]:
        async with deadline(10.0):
            await asyncio.sleep(4.0)
            for seconds in waits:
                async with uncounted():
                    await asyncio.sleep(seconds)
            await asyncio.sleep(7.0 if late else 5.0)
        return [asyncio.get_running_loop().time()]

    if late:
        with pytest.raises(TimeoutError):
            run(work)
    else:
        assert run(work) == [9.0 + sum(waits)]


async def test_work_alone_waits_for_the_lock_and_gives_it_back() -> None:
    lock = threading.Lock()

    def fails() -> None:
        raise ValueError("no")

    lock.acquire()
    waiting = asyncio.create_task(alone(lock, lock.locked))
    await asyncio.sleep(0.03)
    assert not waiting.done()
    lock.release()
    assert await waiting
    with pytest.raises(ValueError, match="no"):
        await alone(lock, fails)
    assert not lock.locked()
