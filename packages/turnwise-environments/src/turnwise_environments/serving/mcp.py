"""An environment as an MCP server: `begin`, the environment's own tools, `finish`.

Over stdio the process is one client's. Over streamable HTTP each session is a client, which takes
the handshake of the protocol's versions up to 2025-11-25: from 2026-07-28 on there are no sessions,
so a client that asks for that version gets an error, and shakes hands. A tool's error is marked as
one, for the model to read; so is a call before `begin` or after the end. The last result has the
verdict as structured content. Needs the extra `mcp`. Not here: what an episode is (`outside.py`),
its bounds (`offer.py`), servers that a recipe's agents use (`tools/mcp.py`).
"""

import asyncio
import base64
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Literal

from turnwise.environments.base import Environment
from turnwise.errors import ConfigError, MissingExtraError, ToolError
from turnwise.tools.tool import Tool
from turnwise.types import Action, ToolCall
from turnwise_environments.serving.offer import Offer, Session, is_loopback, verdict_of
from turnwise_environments.serving.outside import Reply
from turnwise_environments.serving.web_server import free_address, serving

PATH = "/mcp"
SESSION = "mcp-session-id"
CLOSE_SECONDS = 2
"""Seconds that connections have to end by themselves when the server does."""


def check_mcp(environment: Environment) -> None:
    """Raise MissingExtraError without the package mcp, and ConfigError for an environment with a
    tool that is called as one of the server's own."""
    try:
        import mcp  # noqa: F401
    except ModuleNotFoundError:
        raise MissingExtraError("mcp", "mcp") from None
    for name in ("begin", "finish"):
        if name in {tool.name for tool in environment.tools()}:
            raise ConfigError(f"environment {environment.spec.name} has a tool {name!r} itself")


class McpClient:
    """The tools of one client, over whichever transport."""

    def __init__(self, offer: Offer) -> None:
        self.session = Session(offer)
        self._own = {tool.name: tool for tool in (Tool.of(self.begin), Tool.of(self.finish))}

    async def begin(
        self, task: int, split: Literal["train", "heldout"] = "train", seed: int = 0
    ) -> Reply:
        """Begin an episode and get its task; call this first. An episode that is under way is given
        up."""
        return await self.session.begin(task, split, seed)

    async def finish(self, answer: str = "") -> Reply:
        """Give the answer, or say something to the user where the task has one. It ends most
        episodes, with a verdict."""
        return await self.session.act(Action(answer, answer=answer))

    async def call(self, name: str, arguments: Mapping[str, Any]) -> Reply:
        """Run a tool. Raises ToolError for wrong arguments of `begin` and `finish`, a task that is
        not there, too many episodes, and calls outside of an episode."""
        if name not in self._own:
            return await self.session.act(Action("", calls=(ToolCall(name, dict(arguments)),)))
        tool = self._own[name]
        reply: Reply = await tool.function(**tool.check(arguments))
        return reply

    def listed(self, offer: Offer) -> list[Tool]:
        """All tools that there are, `begin` first."""
        begin, finish = self._own.values()
        return [begin, *offer.environment.tools(), finish]


def make_server(offer: Offer, client_of: Callable[[Any], McpClient]) -> Any:
    """The server of the package mcp; `client_of` finds the client of a request's context."""
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
    """A reply as the result of a tool."""
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
    """Serve the one client at standard input and output, until it ends the input. SIGINT and
    SIGTERM give its episode up and end the process."""
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
    """The clients of a server, by the ids of their sessions."""

    def __init__(self, offer: Offer) -> None:
        self._offer = offer
        self._known: dict[str, McpClient] = {}

    def of(self, context: Any) -> McpClient:
        """The client that a request is of. Raises ToolError for one without a session."""
        name = context.request.headers.get(SESSION) if context.request is not None else None
        if name is None:
            raise ToolError("an episode belongs to a session: initialize one first")
        if name not in self._known:
            # Nothing tells of a session that ended by silence: who has no episode goes.
            playing = {one: its for one, its in self._known.items() if its.session.running}
            self._known = {**playing, name: McpClient(self._offer)}
        return self._known[name]

    async def end(self, name: str) -> None:
        """Give up what a session has."""
        client = self._known.pop(name, None)
        if client is not None:
            await client.session.close()


@contextlib.asynccontextmanager
async def serving_http(offer: Offer, host: str, port: int) -> AsyncIterator[str]:
    """Serve inside; gives the address. Port 0 is any that is free. Raises OSError for an address
    that cannot be had."""
    bound = free_address(host, port)
    try:
        application = _application(offer, host)
        async with serving(application, bound, CLOSE_SECONDS, lifespan=True) as address:
            yield f"{address}{PATH}"
    finally:
        await offer.close()


def _application(offer: Offer, host: str) -> Any:
    """The server as an application of ASGI."""
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
