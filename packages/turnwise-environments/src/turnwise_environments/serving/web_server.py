"""Serves an ASGI application over HTTP inside this process, for as long as a block runs.

Signals are left to the command. Not here: the applications, and the gateway's own server, which is
less patient with clients (`packages/turnwise-gateway`).
"""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any


def free_address(host: str, port: int) -> socket.socket:
    """A socket that listens there; port 0 is any that is free. Raises OSError for an address that
    cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family)


@asynccontextmanager
async def serving(
    application: Any, bound: socket.socket, grace: int = 1, lifespan: bool = False
) -> AsyncIterator[str]:
    """Serve inside at a listening socket; gives the address, as in `http://127.0.0.1:8080`.

    At the end requests under way have `grace` seconds; `lifespan` is whether the application is
    to be told of beginning and end.
    """
    import uvicorn

    class Server(uvicorn.Server):
        @contextmanager
        def capture_signals(self) -> Any:
            yield

    config = uvicorn.Config(
        application,
        log_level="critical",
        ws="none",
        lifespan="on" if lifespan else "off",
        timeout_graceful_shutdown=grace,
    )
    server = Server(config)
    task = asyncio.create_task(server.serve(sockets=[bound]))
    host, port = bound.getsockname()[:2]
    try:
        yield f"http://{f'[{host}]' if ':' in host else host}:{port}"
    finally:
        server.should_exit = True
        await task
        bound.close()
