"""Servers in a thread of their own, and episodes played locally to compare with."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager

from turnwise.environments.base import Environment
from turnwise.types import Task
from turnwise_environments.measurement import Play, played_all

A_HANG = 60.0
"""Seconds after which a test says that something hangs."""


@contextlib.contextmanager
def running(serving: Callable[[], AbstractAsyncContextManager[str]]) -> Iterator[str]:
    """A server while the block runs; gives its address."""
    begun, over = threading.Event(), asyncio.Event()
    found: list[str] = []
    loop = asyncio.new_event_loop()

    async def work() -> None:
        async with serving() as address:
            found.append(address)
            begun.set()
            await over.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(work(),))
    thread.start()
    assert begun.wait(A_HANG)
    try:
        yield found[0]
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(A_HANG)
        assert not thread.is_alive()
        loop.close()


def local(environment: Environment, task: Task) -> Play:
    """The oracle's episode, played here."""
    (play,) = played_all(environment, [task], [environment.oracle(task)])
    return play
