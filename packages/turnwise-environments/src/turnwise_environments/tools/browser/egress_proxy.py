"""The one way out of a browser: a proxy of its own for each episode.

It answers for the sites that are objects (`sites.py`), passes on what goes to hosts on the list, by
the rules of `http.py` (public addresses only, looked up once), and refuses everything else, each
redirect and each image too. It runs in the browser's own event loop. Not here: what a page that
was passed on says, and what is in an encrypted connection to a host that is allowed.
"""

import asyncio
import contextlib
from collections.abc import Mapping
from http import HTTPStatus
from urllib.parse import urlsplit

from turnwise.errors import InfrastructureError, ToolError
from turnwise_environments.tools.browser.sites import Response, Site, request_of
from turnwise_environments.tools.http import PORTS, Fetcher

MOST_BYTES = 1 << 20
"""Largest head or form of one request, in bytes."""
_CHUNK = 1 << 16
_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class EgressProxy:
    """Example: EgressProxy({"forms.test": site}, None), which nothing but that site gets
    through."""

    def __init__(self, sites: Mapping[str, Site], fetcher: Fetcher | None) -> None:
        self._sites, self._fetcher = sites, fetcher
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        self.refused: dict[str, str] = {}
        """Hosts that were refused, with their port if it is not the scheme's own, and why."""
        self.problem: Exception | None = None
        """The exception that a site raised, a bug."""

    async def open(self) -> int:
        """Listen on this machine alone; gives the port."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=MOST_BYTES)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def close(self) -> None:
        """End all connections. Idempotent."""
        self._closed = True
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0)  # in which aborted connections are closed

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if self._closed:  # it was accepted before that
            writer.transport.abort()
            return
        self._tasks.add(task)
        self._writers.add(writer)
        try:
            await self._answer(reader, writer)
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError):
            pass  # a connection that breaks off is the browser's to notice
        except asyncio.CancelledError:
            pass  # the proxy was closed; raised on, asyncio would report it as unhandled
        finally:
            self._tasks.discard(task)
            self._writers.discard(writer)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *rows = head.split("\r\n")
        method, target, _ = first.split(" ", 2)
        headers = dict(_header(row) for row in rows if row)
        if method == "CONNECT":
            await self._connect(target, (reader, writer))
            return
        site = self._sites.get(urlsplit(target).netloc)
        if site is None:
            await self._forward(method, target, rows, (reader, writer))
            return
        length = int(headers.get("content-length", 0))
        if length > MOST_BYTES:
            raise ValueError(f"a form of {length} bytes")
        body = (await reader.readexactly(length)).decode()
        try:
            response = site.handle(request_of(method, target, body))
        except Exception as error:  # noqa: BLE001 - raised again where the page is acted on
            self.problem, response = error, Response("the site failed", status=500)
        await _reply(writer, response)

    async def _connect(self, target: str, browser: _Streams) -> None:
        there = await self._reached(f"https://{target}/")
        if there is not None:
            browser[1].write(b"HTTP/1.1 200 Connected\r\n\r\n")
            await self._joined(browser, there)

    async def _forward(self, method: str, target: str, rows: list[str], browser: _Streams) -> None:
        there = await self._reached(target)
        if there is None:
            return
        parts = urlsplit(target)
        path = f"{parts.path or '/'}{'?' if parts.query else ''}{parts.query}"
        kept = [row for row in rows if row and _header(row)[0] not in _OWN]
        head = [f"{method} {path} HTTP/1.1", *kept, "Connection: close"]
        there[1].write("\r\n".join([*head, "", ""]).encode("latin-1"))
        await self._joined(browser, there)

    async def _reached(self, url: str) -> _Streams | None:
        """A connection to a host that is allowed; otherwise the browser's ends without a word."""
        name = urlsplit(url).netloc.removesuffix(":443")
        try:
            if self._fetcher is None:
                raise ToolError(f"{name} is not allowed: nothing outside is")
            parts, addresses = await asyncio.to_thread(self._fetcher.checked, url)
        except ToolError as error:
            self.refused[name] = str(error)
            return None
        except InfrastructureError:
            return None
        for address in addresses:
            with contextlib.suppress(OSError):
                there = await asyncio.open_connection(address, parts.port or PORTS[parts.scheme])
                self._writers.add(there[1])
                return there
        return None

    async def _joined(self, one: _Streams, other: _Streams) -> None:
        """Pass on in both directions until both ends are done."""
        try:
            await asyncio.gather(_copy(one[0], other[1]), _copy(other[0], one[1]))
        finally:
            self._writers.discard(other[1])
            other[1].close()


_OWN = ("connection", "keep-alive", "proxy-connection", "proxy-authorization")


def _header(row: str) -> tuple[str, str]:
    name, _, value = row.partition(":")
    return name.strip().lower(), value.strip()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while chunk := await reader.read(_CHUNK):
            writer.write(chunk)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()


async def _reply(writer: asyncio.StreamWriter, response: Response) -> None:
    """Each answer ends its connection: no form is sent twice over one that was kept."""
    status = HTTPStatus(303 if response.location else response.status)
    body = response.html.encode()
    rows = [
        f"HTTP/1.1 {status.value} {status.phrase}",
        f"Content-Type: {'text/html' if status < 400 else 'text/plain'}; charset=utf-8",
        f"Content-Length: {len(body)}",
        "Cache-Control: no-store",
        "Connection: close",
    ]
    if response.location:
        rows.append(f"Location: {response.location}")
    writer.write("\r\n".join([*rows, "", ""]).encode("latin-1") + body)
    await writer.drain()
