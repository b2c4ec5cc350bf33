"""Limits of a client's share of the server: connections, files, time, and bytes of bodies; and what
this process has to have for its clients."""

import asyncio
import json
import os
import resource
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, TypeVar
from urllib.request import proxy_bypass

import h11
from starlette.requests import Request
from uvicorn.protocols.http.h11_impl import H11Protocol

from turnwise.tools.tool import in_thread
from turnwise_gateway.bounds import check_body, check_depth
from turnwise_gateway.requests import RefusedError
from turnwise_gateway.session import Session

Read = TypeVar("Read")
LARGEST_BODY = 10_000_000
"""Bytes of a request's body."""
PATIENCE = 30.0
"""Seconds that a client has for the headers of a request, and for its body."""
MOST_CONNECTIONS = 4096
MOST_REQUESTS = 256
"""Requests of one episode at the same time."""
MOST_BYTES, MOST_BYTES_OF_ALL = 2 * LARGEST_BODY, 20 * LARGEST_BODY
"""Bytes of bodies that are being read, for one episode and for all."""
OPEN_FILES = 65_536
"""The soft limit of files, as far as the hard one allows."""


class Impatient(H11Protocol):
    """Closes connections whose next request does not come, and those above MOST_CONNECTIONS."""

    _impatience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            transport.abort()
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._be_patient()
        super().connection_lost(exc)

    def _watch(self) -> None:
        # h11 is idle until all headers of a request are there.
        answered = self.cycle is not None and self.cycle.response_complete
        if not (answered or self.conn.their_state is h11.IDLE):
            self._be_patient()
        elif self._impatience is None:
            self._impatience = self.loop.call_later(PATIENCE, self.transport.abort)

    def _be_patient(self) -> None:
        if self._impatience is not None:
            self._impatience.cancel()
            self._impatience = None


async def body_of(
    request: Request, session: Session, read: Callable[[Mapping[str, Any]], Read]
) -> Read:
    """The JSON object in a request's body, as `read` has it. Raises RefusedError for one that is
    too large, comes too slowly, or is none."""
    data = await read_bytes(request, session)
    # In a thread: ten megabytes take a second, in which the loop has others to serve.
    read_body: Read = await in_thread(lambda: read(_object(data)))
    return read_body


def _object(data: bytearray) -> Mapping[str, Any]:
    check_body(data)  # before objects are made of it, which take many times its bytes
    try:
        body = json.loads(bytes(data))
    except (ValueError, RecursionError):
        raise RefusedError("the body is not JSON") from None
    if not isinstance(body, dict):
        raise RefusedError("the body is not a JSON object")
    check_depth(body)
    return body


async def read_bytes(request: Request, session: Session) -> bytearray:
    """The bytes of a body. Raises RefusedError for too many, at once or of several requests."""
    data = bytearray()
    reading: Counter[Session | None] = request.app.state.reading  # None is all of them
    try:
        async with asyncio.timeout(PATIENCE):
            async for chunk in request.stream():
                data += chunk
                reading[session] += len(chunk)
                reading[None] += len(chunk)
                if len(data) > LARGEST_BODY:
                    raise RefusedError(
                        f"the body has more than {LARGEST_BODY} bytes",
                        413,
                        kind="request_too_large",
                    )
                if reading[session] > MOST_BYTES or reading[None] > MOST_BYTES_OF_ALL:
                    raise RefusedError("too many bodies at once: send it later", 429)
    except TimeoutError:
        raise RefusedError(f"no whole body within {PATIENCE:g} s", 408) from None
    finally:
        reading[session] -= len(data)
        reading[None] -= len(data)
        if not reading[session]:
            del reading[session]
    return data


@contextmanager
def one_more(session: Session) -> Iterator[None]:
    """Inside, a request of an episode is under way. Raises RefusedError for one too many."""
    if session.requests >= MOST_REQUESTS:
        raise RefusedError(f"{MOST_REQUESTS} requests are under way: wait for a reply", 429)
    session.requests += 1
    try:
        yield
    finally:
        session.requests -= 1


def raise_open_files() -> None:
    """Let this process have as many connections as the system allows it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):  # then the soft limit is what there is
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def bypass_proxies(host: str) -> None:
    """Let agents here reach a host of this machine, whatever proxy the environment names for all
    others."""
    if not proxy_bypass(host):
        # Clients differ in which of the two they read.
        known = dict.fromkeys((os.environ.get("no_proxy"), os.environ.get("NO_PROXY"), host))
        os.environ["no_proxy"] = os.environ["NO_PROXY"] = ",".join(filter(None, known))
