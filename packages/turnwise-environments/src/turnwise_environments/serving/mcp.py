"""An environment as an MCP server: `begin`, the environment's own tools, `finish`.

Over stdio the process is one client's. Over streamable HTTP each session is a client, which takes
the handshake of the protocol's versions up to 2025-11-25: from 2026-07-28 on there are no sessions,
so a client that asks for that version gets an error, and shakes hands. A tool's error is marked as
one, for the model to read; so is a call before `begin` or after the end. The last result has the
verdict as structured content. Needs the extra `mcp`.
"""

import asyncio
import base64
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from turnwise.environments.base import Environment, Split
from turnwise.errors import ConfigError, ToolError
from turnwise.tools.tool import Tool
from turnwise.types import Action, ToolCall
from turnwise_environments.common import check_installed
from turnwise_environments.serving.offer import Offer, Reply, Session, is_loopback, verdict_of

PATH = "/mcp"
SESSION = "mcp-session-id"
CLOSE_SECONDS = 2
"""Seconds that connections have to end by themselves when the server does."""


def check_mcp(environment: Environment) -> None:
    """Raise MissingExtraError without the package mcp, and ConfigError where names collide."""
    check_installed("mcp", "mcp")
    for name in ("begin", "finish"):
        if name in {tool.name for tool in environment.tools()}:
            raise ConfigError(f"environment {environment.spec.name} has a tool {name!r} itself")


class McpClient:
    """The tools of one client, over whichever transport."""

    def __init__(self, offer: Offer) -> None:
        self.session = Session(offer)
        self._own = {tool.name: tool for tool in (Tool.of(self.begin), Tool.of(self.finish))}

    async def begin(self, task: int, split: Split = "train", seed: int = 0) -> Reply:
        """Begin an episode and get its task; call this first. An episode that is under way is given
        up."""
        return await self.session.begin(task, split, seed)

    async def finish(self, answer: str = "") -> Reply:
        """Give the answer, or say something to the user where the task has one. It ends most
        episodes, with a verdict."""
        return await self.session.act(Action(answer, answer=answer))

    async def call(self, name: str, arguments: Mapping[str, Any]) -> Reply:
        """Run a tool. Raises ToolError for what the client did wrong."""
        if name not in self._own:
            return await self.session.act(Action("", calls=(ToolCall(name, dict(arguments)),)))
        tool = self._own[name]
        reply: Reply = await tool.function(**tool.check(arguments))
        return reply

    def listed(self, offer: Offer) -> list[Tool]:
        begin, finish = self._own.values()
        return [begin, *offer.environment.tools(), finish]


def make_server(offer: Offer, client_of: Callable[[Any], McpClient]) -> Any:
    """The server; `client_of` finds the client of a request's context."""
    import mcp_types as types
    from mcp.server.lowlevel import Server

    spec = offer.environment.spec
    shown = McpClient(offer).listed(offer)
    counts = f"split train has {offer.count('train')}, heldout {offer.count('heldout')} tasks"

    async def list_tools(context: Any, params: Any) -> Any:
        tools = []
        for tool in shown:
            words = tool.description + (f" From 0: {counts}." if tool is shown[0] else "")
            schema = dict(tool.schema["parameters"])
            tools.append(types.Tool(name=tool.name, description=words, input_schema=schema))
        return types.ListToolsResult(tools=tools)

    async def call_tool(context: Any, params: Any) -> Any:
        try:
            reply = await client_of(context).call(params.name, params.arguments or {})
        except ToolError as error:
            return types.CallToolResult(content=[_text(str(error))], is_error=True)
        return _result(reply)

    return Server(
        f"turnwise {spec.name}",
        version=spec.version,
        instructions=f"Episodes of {spec.name}. Call begin with a task's number ({counts}), act "
        "with the other tools, and give the answer with finish.",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def _result(reply: Reply) -> Any:
    import mcp_types as types

    content = [_text(reply.observation.content)]
    for image in reply.observation.images:
        data = base64.b64encode(image).decode()
        content.append(types.ImageContent(data=data, mime_type="image/png"))
    if reply.ended is None:
        return types.CallToolResult(content=content, is_error=not reply.ok)
    told = verdict_of(reply.ended)
    if not told["graded"]:
        over = f"The episode is over without a grade: {told['outcome']}."
        return types.CallToolResult(content=[*content, _text(over)], is_error=True)
    words = f"The episode is over: {told['outcome']}, reward {told['reward']:g}. {told['detail']}"
    shown = {"observation": reply.observation.content, **told}
    return types.CallToolResult(content=[*content, _text(words)], structured_content=shown)


def _text(text: str) -> Any:
    import mcp_types as types

    return types.TextContent(text=text)


async def serve_stdio(offer: Offer) -> None:
    """Serve the one client until it ends the input. SIGINT and SIGTERM end the process."""
    from mcp.server.stdio import stdio_server

    loop, leaving = asyncio.get_running_loop(), set()

    def leave(number: int) -> None:
        leaving.add(asyncio.create_task(_leave(offer, number)))

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, leave, number)
    client = McpClient(offer)
    server = make_server(offer, lambda context: client)
    try:
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())
    finally:
        await offer.close()


async def _leave(offer: Offer, number: int) -> None:
    """End the process at once, with the episode closed: nothing interrupts the thread that waits
    for a line of standard input."""
    await offer.close()
    os._exit(128 + number)


class _Clients:
    def __init__(self, offer: Offer) -> None:
        self._offer = offer
        self._known: dict[str, McpClient] = {}

    def of(self, context: Any) -> McpClient:
        """Raises ToolError for a request without a session."""
        name = context.request.headers.get(SESSION) if context.request is not None else None
        if name is None:
            raise ToolError("an episode belongs to a session: initialize one first")
        if name not in self._known:
            # Nothing tells of a session that ended by silence: who has no episode goes.
            playing = {one: its for one, its in self._known.items() if its.session.running}
            self._known = {**playing, name: McpClient(self._offer)}
        return self._known[name]

    async def end(self, name: str) -> None:
        client = self._known.pop(name, None)
        if client is not None:
            await client.session.close()


@asynccontextmanager
async def serving_http(offer: Offer, host: str, port: int) -> AsyncIterator[str]:
    """Serve inside; gives the address. Port 0 is any free one. Raises OSError for one that is
    taken."""
    bound = free_address(host, port)
    try:
        application = _application(offer, host)
        async with serving(application, bound, CLOSE_SECONDS, lifespan=True) as address:
            yield f"{address}{PATH}"
    finally:
        await offer.close()


def _application(offer: Offer, host: str) -> Any:
    import mcp_types as types
    from mcp import MCPError
    from mcp.server.streamable_http_manager import (
        StreamableHTTPASGIApp,
        StreamableHTTPSessionManager,
    )
    from mcp.server.transport_security import TransportSecuritySettings
    from starlette.applications import Starlette
    from starlette.routing import Route

    async def shake_hands(context: Any, params: Any) -> Any:
        raise MCPError(types.METHOD_NOT_FOUND, "an episode needs a session: initialize one")

    clients = _Clients(offer)
    server = make_server(offer, clients.of)
    server.add_request_handler("server/discover", types.RequestParams, shake_hands)
    here = ("127.0.0.1:*", "localhost:*", "[::1]:*")
    security = TransportSecuritySettings(
        enable_dns_rebinding_protection=is_loopback(host),
        allowed_hosts=list(here),
        allowed_origins=[f"http://{name}" for name in here],
    )
    manager = StreamableHTTPSessionManager(
        server,
        security_settings=security,
        session_idle_timeout=offer.patience + offer.limits.max_seconds,
    )
    inner = StreamableHTTPASGIApp(manager)

    class Application:
        """A class, for Starlette takes a function for a handler of one request."""

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            await inner(scope, receive, send)
            if scope["method"] == "DELETE":
                headers = {key.decode(): value.decode() for key, value in scope["headers"]}
                await clients.end(headers.get(SESSION, ""))

    routes = [Route(PATH, endpoint=Application())]
    return Starlette(routes=routes, lifespan=lambda _: manager.run())


def free_address(host: str, port: int) -> socket.socket:
    """A socket that listens there. Raises OSError for an address that cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family)


@asynccontextmanager
async def serving(
    application: Any, bound: socket.socket, grace: int = 1, lifespan: bool = False
) -> AsyncIterator[str]:
    """Serve inside at a listening socket; gives the address. At the end requests under way have
    `grace` seconds; `lifespan` is whether the application hears of beginning and end."""
    import uvicorn

    class Server(uvicorn.Server):
        # Signals are the command's, which closes the episodes; uvicorn would take them over.
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
