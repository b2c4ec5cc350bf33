"""Asynchronous work from callers that are not: results, errors, one loop, Ctrl-C."""

import asyncio
import signal
import threading

import pytest

from turnwise.event_loop import finish, run


async def present_loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


async def failing() -> None:
    raise ValueError("of the work")


def test_one_loop_is_kept_in_the_background() -> None:
    loop = finish(present_loop())
    assert loop is finish(present_loop())
    assert loop.is_running()
    assert not run(present_loop()).is_running()


def test_an_event_loop_may_run_already() -> None:
    async def cell() -> None:
        assert run(present_loop()) is finish(present_loop()) is not asyncio.get_running_loop()

    asyncio.run(cell())


def test_errors_are_raised_where_the_work_was_asked_for() -> None:
    for way in (run, finish):
        with pytest.raises(ValueError, match="of the work"):
            way(failing())


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_cancels_the_work_and_waits_for_its_end() -> None:
    ended = threading.Event()
    main = threading.main_thread().ident

    async def work() -> None:
        await asyncio.sleep(0.1)  # the caller waits by now
        signal.pthread_kill(main, signal.SIGINT)
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            await asyncio.sleep(0.1)  # saving takes a while
            ended.set()
            raise

    with pytest.raises(KeyboardInterrupt):
        finish(work())
    assert ended.is_set()
