"""Signals end work as Ctrl-C does: it is cancelled, cleans up, and only then is the signal told."""

import asyncio
import os
import signal

import pytest

from turnwise.stopping import Stopped, name_main_task, stoppable

NUMBERS = {signal.SIGTERM: 143, signal.SIGUSR1: 75}


@pytest.mark.parametrize(("number", "code"), NUMBERS.items())
def test_a_signal_cancels_the_work_which_saves(number: signal.Signals, code: int) -> None:
    saved: list[str] = []

    async def work() -> None:
        name_main_task()
        try:
            os.kill(os.getpid(), number)
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            os.kill(os.getpid(), number)  # a second one does not disturb the saving
            await asyncio.sleep(0)
            saved.append("all")
            raise

    with pytest.raises(Stopped, match=number.name) as stopped, stoppable():
        asyncio.run(work())
    assert (saved, stopped.value.exit_code) == (["all"], code)
    assert signal.getsignal(number) == signal.SIG_DFL


@pytest.mark.parametrize("number", NUMBERS)
def test_a_signal_ends_what_is_done_before_and_after_the_work(number: signal.Signals) -> None:
    async def work() -> int:
        name_main_task()
        return 3

    with pytest.raises(Stopped), stoppable():
        signal.raise_signal(number)

    def worked_before() -> None:
        with stoppable():
            assert asyncio.run(work()) == 3
            signal.raise_signal(number)

    with pytest.raises(Stopped):
        worked_before()


def test_what_is_cancelled_without_a_signal_is_no_signal() -> None:
    async def work() -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError), stoppable():
        asyncio.run(work())


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_is_as_it_was() -> None:
    async def work() -> None:
        signal.raise_signal(signal.SIGINT)
        await asyncio.sleep(60)

    with pytest.raises(KeyboardInterrupt) as interrupted, stoppable():
        asyncio.run(work())
    assert not isinstance(interrupted.value, Stopped)
