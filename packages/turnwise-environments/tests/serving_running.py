"""Servers in a thread or a process of their own, and episodes played locally to compare with."""

import asyncio
import contextlib
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from turnwise.environments.base import Environment
from turnwise.types import Task
from turnwise_environments.measurement import Play, played_all

A_HANG = 60.0
"""Seconds after which a test says that something hangs."""
FEW = {"tasks": {"count": 4}}
"""For environments that make a thousand tasks by themselves."""


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


@contextlib.contextmanager
def listening(*words: str, **options: Any) -> Iterator[tuple[str, "subprocess.Popen[bytes]"]]:
    """A Python program that serves at the port that comes last among its words, once it answers;
    gives its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        place = probe.getsockname()
    process = subprocess.Popen([sys.executable, *words, str(place[1])], **options)
    until = time.monotonic() + 2 * A_HANG
    try:
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(place) == 0:
                    break
            assert process.poll() is None, "the server did not start"
            assert time.monotonic() < until, "the server was not there in time"
            time.sleep(0.05)
        yield f"http://127.0.0.1:{place[1]}", process
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def http_server(
    handler: type[BaseHTTPRequestHandler], context: ssl.SSLContext | None = None
) -> Iterator[str]:
    """A web server while the block runs, over TLS with a context; gives host:port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=[0.01])
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def local(environment: Environment, task: Task) -> Play:
    """The oracle's episode, played here."""
    (play,) = played_all(environment, [task], [environment.oracle(task)])
    return play
