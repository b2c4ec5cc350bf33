"""Asynchronous work for callers that are not: scripts, and notebooks, whose loop runs already."""

import asyncio
import threading
from collections.abc import Coroutine
from functools import cache
from typing import Any, TypeVar

Result = TypeVar("Result")


def run(work: Coroutine[Any, Any, Result]) -> Result:
    """Do a piece of work that stands alone: as `asyncio.run` where this thread has no event loop
    yet, else in the background. Ctrl-C cancels it, and is raised when it has ended."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    return finish(work)


def finish(work: Coroutine[Any, Any, Result]) -> Result:
    """Do work in the one event loop that the process keeps in the background, where what an engine
    does between two calls goes on. Ctrl-C cancels it, and is raised when it has ended."""
    loop = _background()
    # A task of its own: the future of `work` would be done as soon as it is cancelled, and not when
    # the work has ended.
    begun = asyncio.run_coroutine_threadsafe(_begun(work), loop)
    try:
        asyncio.run_coroutine_threadsafe(asyncio.wait({begun.result()}), loop).result()
    except KeyboardInterrupt:
        loop.call_soon_threadsafe(begun.result().cancel)
        asyncio.run_coroutine_threadsafe(asyncio.wait({begun.result()}), loop).result()
        raise
    return begun.result().result()


async def _begun(work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
    return asyncio.create_task(work)


@cache
def _background() -> asyncio.AbstractEventLoop:
    """Begins with the first work; its thread is a daemon, so that programs can end."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="turnwise", daemon=True).start()
    return loop
