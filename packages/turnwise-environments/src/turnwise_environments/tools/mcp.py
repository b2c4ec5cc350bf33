"""The tools of any MCP server, started as a program (stdio) or reached by an address (streamable
HTTP); needs the extra `mcp`.

    class Mine(McpTools, Environment):
        def __init__(self) -> None:
            self.mcp = McpServer(command=["python", "server.py"])    # the prototype's
        ...

Each episode has a connection of its own; a server that is a program is started for it. What a tool
calls an error is the agent's to read; a server that dies, hangs or breaks the protocol is
infrastructure. Not here: resources, prompts and sampling; a server's state, which no snapshot has.
"""

import asyncio
import contextlib
import json
import os
import shutil
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import httpx2
from pydantic import ValidationError

from turnwise.errors import ConfigError, InfrastructureError, ToolError
from turnwise.tools.tool import Tool, readable
from turnwise_environments.common import check_installed
from turnwise_environments.tools.http import is_address

START_SECONDS, CLOSE_SECONDS = 30.0, 5.0
INVALID_PARAMS, METHOD_NOT_FOUND = -32602, -32601
"""JSON-RPC's codes for what the agent did wrong."""

Call = Callable[[str, Mapping[str, Any], float], Awaitable[str]]
"""Tool, arguments, seconds."""


@dataclass(frozen=True)
class McpTool(Tool):
    """A tool of a server, which checks its arguments itself."""

    async def __call__(self, arguments: Mapping[str, Any], deadline: float) -> str:
        """Run the tool. Raises ToolError for what the server calls an error, InfrastructureError
        where it gives no answer within `deadline` seconds."""
        try:
            return readable(str(await self.function(self.name, arguments, deadline)))
        except ToolError as error:
            raise ToolError(readable(str(error))) from error

    def check(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments as they are."""
        return dict(arguments)


class McpServer:
    """The way to reach a server; the prototype's, shared by all episodes."""

    def __init__(
        self,
        command: Sequence[str] = (),
        url: str = "",
        environment: Mapping[str, str] = {},
        seconds: float = START_SECONDS,
    ) -> None:
        """A `command` with its arguments and what is added to its `environment`, or a `url`; a
        connection has to be there within `seconds`. Raises ConfigError for both or neither, and for
        a command that is not there; MissingExtraError without the package mcp."""
        if bool(command) == bool(url) or isinstance(command, str):
            raise ConfigError("mcp: give either a command, as a list of words, or a url")
        if url and not is_address(url):
            raise ConfigError(f"mcp: {url!r} is no address: write http://host:port/mcp")
        if command and shutil.which(command[0]) is None:
            raise ConfigError(f"mcp: there is no program {command[0]!r}")
        check_installed("mcp", "mcp")
        self.command, self.url = tuple(command), url
        self.environment, self.seconds = dict(environment), seconds
        self._lock = threading.Lock()
        self._schemas: list[dict[str, Any]] | None = None

    @property
    def name(self) -> str:
        """The server's name in messages."""
        return self.url or " ".join(self.command)

    @property
    def schemas(self) -> list[dict[str, Any]]:
        """Name, description and parameters of each tool; asked once. Raises InfrastructureError."""
        with self._lock:
            if self._schemas is None:
                with ThreadPoolExecutor(1) as thread:  # a loop may be running here
                    self._schemas = thread.submit(asyncio.run, self._listed()).result()
            return self._schemas

    def tools(self, call: Call) -> list[Tool]:
        return [McpTool(one["name"], one["description"], one, call) for one in self.schemas]

    async def open(self) -> "McpSession":
        """A connection of its own. Raises InfrastructureError if it does not open in time."""
        session = McpSession(self)
        await session.open()
        return session

    async def _listed(self) -> list[dict[str, Any]]:
        session = await self.open()
        try:
            return session.schemas
        finally:
            await session.close()

    @contextlib.asynccontextmanager
    async def _client(self) -> AsyncIterator[Any]:
        import mcp

        async with contextlib.AsyncExitStack() as stack:
            target: Any = self.url
            if self.command:
                parameters = mcp.StdioServerParameters(
                    command=self.command[0], args=list(self.command[1:]), env=self.environment
                )
                nowhere = stack.enter_context(open(os.devnull, "w"))  # noqa: SIM115 - the stack closes it
                target = mcp.stdio_client(parameters, errlog=nowhere)
            client = mcp.Client(target, read_timeout_seconds=self.seconds)
            try:
                connected = await stack.enter_async_context(client)
            except RuntimeError as error:  # a version of the protocol that is not known
                raise InfrastructureError(str(error)) from None
            yield connected


class McpSession:
    """One connection, held by a task of its own: calls go to it, and wait for what it says."""

    def __init__(self, server: McpServer) -> None:
        self.server = server
        self.schemas: list[dict[str, Any]] = []
        self._asked: asyncio.Queue[_Asked | None] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._serve(ready))
        done = await _first({self._task, ready}, self.server.seconds)
        if ready in done:
            return ready.result()
        if done:
            self._task.result()  # raises: it ends without a word for a bug only
        ready.cancel()
        await self.close()
        seconds = f"{self.server.seconds:g} s"
        raise InfrastructureError(f"mcp server {self.server.name}: not ready within {seconds}")

    async def call(self, name: str, arguments: Mapping[str, Any], seconds: float) -> str:
        """A tool's result, as text. Raises ToolError for a result that is marked as an error, and
        InfrastructureError where the server is gone or does not answer in time."""
        if self._task is None or self._task.done():
            raise self._gone()
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._asked.put_nowait(_Asked(name, dict(arguments), seconds, answer))
        # The package's own deadline, which says more, comes first.
        done = await _first({self._task, answer}, seconds + 1.0)
        if answer in done:
            return answer.result()
        if done:
            raise self._gone()
        reason = f"no result within {seconds:g} s"
        raise InfrastructureError(f"mcp server {self.server.name}: {reason}")

    async def close(self) -> None:
        """End the connection, and the program if it is one. Idempotent, bounded."""
        if self._task is None:
            return
        self._asked.put_nowait(None)
        done, _ = await asyncio.wait({self._task}, timeout=CLOSE_SECONDS)
        if not done:
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=CLOSE_SECONDS)
        self._task = None

    def _gone(self) -> InfrastructureError:
        """The error of a connection that ended; raises what ended it if that was a bug."""
        if self._task is not None and not self._task.cancelled():
            self._task.result()
        return InfrastructureError(f"mcp server {self.server.name}: it is gone")

    async def _serve(self, ready: asyncio.Future[None]) -> None:
        import anyio
        import mcp

        # What the package raises when a server is not there, ends, or breaks the protocol; of
        # groups its part. A RuntimeError, which may be a bug's as well, is told from it where the
        # package is called.
        ends = (mcp.MCPError, OSError, httpx2.HTTPError, ValidationError, InfrastructureError)
        lost = (anyio.ClosedResourceError, anyio.BrokenResourceError, anyio.EndOfStream)
        broken = (UnicodeDecodeError,)  # a program that writes something else than UTF-8
        try:
            async with self.server._client() as client:
                self.schemas = await _schemas(client)
                if not ready.done():
                    ready.set_result(None)
                while (asked := await self._asked.get()) is not None:
                    await self._ask(client, asked)
        except* (*ends, *lost, *broken) as error:
            text = f"mcp server {self.server.name}: {_reason(error)}"
            if not ready.done():
                ready.set_exception(InfrastructureError(text))
                ready.exception()  # who waited may be gone: asyncio need not report it

    async def _ask(self, client: Any, asked: "_Asked") -> None:
        import mcp

        failed: Exception | None = None
        text, where = "", f"mcp server {self.server.name}"
        try:
            result = await client.call_tool(
                asked.name, asked.arguments, read_timeout_seconds=asked.seconds
            )
            text = "\n".join(_text(part) for part in result.content)
            if not text and result.structured_content is not None:
                text = json.dumps(result.structured_content, ensure_ascii=False)
            failed = ToolError(text or "the tool failed") if result.is_error else None
        except mcp.MCPError as error:
            agents = error.code in (INVALID_PARAMS, METHOD_NOT_FOUND)
            told = error.message if agents else f"{where}: {error.message}"
            failed = ToolError(told) if agents else InfrastructureError(told)
        except RuntimeError as error:  # a result that is not what the tool's schema says
            failed = InfrastructureError(f"{where}: {error}")
        if asked.answer.done():
            return
        if failed is not None:
            asked.answer.set_exception(failed)
        else:
            asked.answer.set_result(text or "(no output)")


@dataclass(frozen=True)
class _Asked:
    """A call that waits for its answer."""

    name: str
    arguments: dict[str, Any]
    seconds: float
    answer: "asyncio.Future[str]"


class McpTools:
    """A server's tools beside an environment's own: derive from this first, then from Environment;
    set `mcp`."""

    mcp: McpServer
    _session: McpSession | None = None

    def tools(self) -> list[Tool]:
        """The environment's own, then the server's. Raises ConfigError where two have one name."""
        own: list[Tool] = super().tools()  # type: ignore[misc]
        found = [*own, *self.mcp.tools(self._call)]
        names = [one.name for one in found]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ConfigError(f"mcp: two tools are called {twice[0]!r}")
        return found

    async def reset(self, task: Any, seed: int) -> Any:
        await McpTools.close(self)
        self._session = McpSession(self.mcp)  # known to `close` before it has opened
        await self._session.open()
        return await super().reset(task, seed)  # type: ignore[misc]

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _call(self, name: str, arguments: Mapping[str, Any], seconds: float) -> str:
        if self._session is None:
            raise InfrastructureError(f"mcp server {self.mcp.name}: there is no connection")
        return await self._session.call(name, arguments, seconds)


async def _first(waiting: set[asyncio.Future[Any]], seconds: float) -> set[asyncio.Future[Any]]:
    """Wait until one of these is done, for so many seconds at most, and return those that are."""
    done, _ = await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    return done


async def _schemas(client: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    cursor = None
    while True:
        page = await client.list_tools(cursor=cursor)
        for one in page.tools:
            words = (one.description or "").strip().partition("\n\n")[0].replace("\n", " ")
            # A tool without arguments may leave the list of them out.
            parameters = {"properties": {}, **one.input_schema}
            parameters.pop("title", None)
            found.append({"name": one.name, "description": words, "parameters": parameters})
        cursor = page.next_cursor
        if cursor is None:
            return sorted(found, key=lambda schema: str(schema["name"]))


def _text(part: Any) -> str:
    """A part of a result as text, also a file's that is in it; a note for images and the like."""
    text = getattr(getattr(part, "resource", part), "text", None)
    return text if isinstance(text, str) else f"[{part.type}: no text]"


def _reason(error: BaseException) -> str:
    """The first of several errors, in one line."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error) or type(error).__name__
