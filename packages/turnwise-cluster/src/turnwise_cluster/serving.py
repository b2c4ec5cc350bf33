"""The beginning of a process beside the run's: it connects, builds its parts, and works.

When the connection ends, so does the process. Not here: its start (`placement.py`), and the process
of the run's side (`pool.py`).
"""

import asyncio
import os
import platform
from collections.abc import Awaitable, Callable
from typing import Any

from turnwise.errors import ConfigError, UserError
from turnwise_cluster.frames import Failed, Ready, receive, send

CLOSING = 10.0
"""Seconds that a process has to release what it holds, when the run has ended."""

Work = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
"""Raises IncompleteReadError or OSError when the connection has ended."""


async def serve(
    host: str, port: int, secret: bytes, build: Callable[[Any], tuple[str, Work]]
) -> None:
    """Work for the process of the run, until it ends the connection. `build` makes the parts from
    what that says first; it returns the facts that have to be the run's own, and the work."""
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(secret)
    try:
        setup = await receive(reader)
        try:
            facts, work = build(setup)
        except UserError as error:
            send(writer, Failed(-1, ConfigError(f"on {platform.node()}: {error}")))
            await writer.drain()
            return
        send(writer, Ready(platform.node(), os.getpid(), facts))
        await work(reader, writer)
    except (asyncio.IncompleteReadError, OSError):
        pass  # the run has ended
    finally:
        writer.close()
