"""MCP: a real server of this file's own, over both transports, and one that dies."""

import asyncio
import gc
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from environment_playing import module, steps_of
from serving_running import listening
from turnwise.environments.base import Environment
from turnwise.errors import ConfigError, InfrastructureError, ToolError
from turnwise.tools.tool import tool
from turnwise.types import Action, Task, ToolCall, Verdict
from turnwise_environments.measurement import played_all
from turnwise_environments.tools import mcp as mcp_tools
from turnwise_environments.tools.mcp import McpServer, McpTools

pytest.importorskip("mcp", reason="mcp is not installed: pip install 'turnwise[mcp]'")

SOURCE = '''
import os, sys, time
from mcp.server.mcpserver import Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("small")
total = 0

@server.tool()
def add(number: int, again: int = 0) -> str:
    """Add to a total.

    More on it."""
    global total
    total += number + again
    return f"total {total}"

@server.tool()
def fail(why: str) -> str:
    """Fail."""
    raise ToolError(why)

@server.tool()
def image() -> Image:
    """An image."""
    return Image(data=b"abc", format="png")

@server.tool()
def die() -> str:
    """End the server."""
    os._exit(3)

@server.tool()
def sleep(seconds: float) -> str:
    """Wait."""
    time.sleep(seconds)
    return "awake"

print("noise", file=sys.stderr)
if sys.argv[1] == "stdio":
    server.run("stdio")
else:
    server.run("streamable-http", port=int(sys.argv[1]))
'''


A_HANG = 120.0
"""Seconds within which a server starts and answers, however busy the machine is."""


PATH = {"PYTHONPATH": ":".join(sys.path)}
program = module("server.py", SOURCE)


@pytest.fixture
def stdio(program: Path) -> McpServer:
    return McpServer(
        command=[sys.executable, str(program), "stdio"], environment=PATH, seconds=A_HANG
    )


@contextmanager
def served(program: Path) -> Iterator[tuple[McpServer, "subprocess.Popen[bytes]"]]:
    with listening(str(program), stderr=subprocess.DEVNULL, env=PATH) as (address, process):
        yield McpServer(url=f"{address}/mcp", seconds=A_HANG), process


@pytest.fixture(scope="module")
def http(program: Path) -> Iterator[McpServer]:
    with served(program) as (server, _):
        yield server


@pytest.fixture(params=["stdio", "http"])
def server(request: pytest.FixtureRequest) -> McpServer:
    found: McpServer = request.getfixturevalue(request.param)
    return found


@pytest.mark.long
def test_tools_are_listed_with_their_schemas(server: McpServer) -> None:
    schemas = {one["name"]: one for one in server.schemas}
    assert list(schemas) == ["add", "die", "fail", "image", "sleep"]
    assert schemas["add"]["description"] == "Add to a total."
    assert schemas["add"]["parameters"]["properties"]["number"]["type"] == "integer"
    assert schemas["add"]["parameters"]["required"] == ["number"]
    assert server.schemas is server.schemas


@pytest.mark.long
async def test_calls(server: McpServer) -> None:
    session = await server.open()
    assert (await session.call("add", {"number": 2}, A_HANG)).startswith("total ")
    assert await session.call("image", {}, A_HANG) == "[image: no text]"
    for name, arguments, text in (
        ("fail", {"why": "because"}, "because"),
        ("add", {"number": "x"}, "number"),
        ("none", {}, "none"),
    ):
        with pytest.raises(ToolError, match=text):
            await session.call(name, arguments, A_HANG)
    await session.close()


@pytest.mark.long
async def test_a_server_that_dies_is_infrastructure(stdio: McpServer) -> None:
    session = await stdio.open()
    with pytest.raises(InfrastructureError, match="mcp server"):
        await session.call("die", {}, A_HANG)
    start = time.monotonic()
    with pytest.raises(InfrastructureError, match="mcp server"):
        await session.call("add", {"number": 1}, A_HANG)
    assert time.monotonic() - start < A_HANG / 2
    await session.close()
    await session.close()


@pytest.mark.long
async def test_a_server_that_is_gone_over_http_is_infrastructure(program: Path) -> None:
    with served(program) as (server, process):
        session = await server.open()
        assert await session.call("add", {"number": 1}, A_HANG) == "total 1"
        process.kill()
        process.wait()
        with pytest.raises(InfrastructureError):
            await session.call("add", {"number": 1}, 3.0)
        await session.close()
        with pytest.raises(InfrastructureError):
            await server.open()


@pytest.mark.slow
def test_a_bug_is_no_failure_of_the_server(
    stdio: McpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither while the connection begins nor in a call."""

    def broken(*arguments: Any) -> Any:
        raise KeyError("a bug")

    async def called() -> None:
        session = await stdio.open()
        try:
            monkeypatch.setattr(mcp_tools, "_text", broken)
            await session.call("add", {"number": 1}, A_HANG)
        finally:
            await session.close()

    with pytest.RaisesGroup(KeyError, allow_unwrapped=True, flatten_subgroups=True):
        asyncio.run(called())
    monkeypatch.setattr(mcp_tools, "_schemas", broken)
    with pytest.RaisesGroup(KeyError, allow_unwrapped=True, flatten_subgroups=True):
        asyncio.run(stdio.open())


async def test_a_tool_without_arguments_has_an_empty_list_of_them() -> None:
    class Client:
        async def list_tools(self, cursor: Any) -> Any:
            tool = SimpleNamespace(name="now", description=None, input_schema={"type": "object"})
            return SimpleNamespace(tools=[tool], next_cursor=None)

    (schema,) = await mcp_tools._schemas(Client())
    assert schema["parameters"] == {"type": "object", "properties": {}}


async def test_a_result_that_breaks_its_schema_is_infrastructure(stdio: McpServer) -> None:
    """The package says so by a RuntimeError; its servers send none that is wrong."""

    class Client:
        async def call_tool(self, *arguments: Any, **options: Any) -> Any:
            raise RuntimeError("Invalid structured content returned by tool add")

    answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    asked = mcp_tools._Asked("add", {}, 1.0, answer)
    await mcp_tools.McpSession(stdio)._ask(Client(), asked)
    with pytest.raises(InfrastructureError, match="Invalid structured content"):
        await answer


@pytest.mark.parametrize("structured", [True, False])
async def test_a_result_is_read_wherever_its_text_stands(
    stdio: McpServer, structured: bool
) -> None:
    from mcp_types import CallToolResult, EmbeddedResource, TextResourceContents

    file = EmbeddedResource(resource=TextResourceContents(uri="file:///a", text='{"a": "é"}'))
    result = CallToolResult(content=[] if structured else [file], structured_content={"a": "é"})

    class Client:
        async def call_tool(self, *arguments: Any, **options: Any) -> Any:
            return result

    answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    asked = mcp_tools._Asked("read", {}, 1.0, answer)
    await mcp_tools.McpSession(stdio)._ask(Client(), asked)
    assert await answer == '{"a": "é"}'


@pytest.mark.slow
async def test_a_tool_that_hangs_is_infrastructure_and_ends_in_time(stdio: McpServer) -> None:
    async with asyncio.timeout(A_HANG):
        session = await stdio.open()
        with pytest.raises(InfrastructureError, match=r"timed out|no result within"):
            await session.call("sleep", {"seconds": 1e4}, 0.5)
        await session.close()


def test_a_program_that_is_no_server(tmp_path: Path) -> None:
    silent = McpServer(command=[sys.executable, "-c", "input()"], seconds=1.0)
    ended = McpServer(command=[sys.executable, "-c", "pass"], seconds=A_HANG)
    for server in (silent, ended):
        with pytest.raises(InfrastructureError, match="mcp server"):
            server.schemas  # noqa: B018


@pytest.mark.slow
@pytest.mark.parametrize(
    "source",
    [
        "import time; time.sleep(1.5)",  # says why it is not ready after the deadline
        "import sys; sys.stdout.buffer.write(b'\\xff\\n'); sys.stdout.flush(); input()",
    ],
)
async def test_a_program_that_is_no_server_leaves_no_error_behind(source: str) -> None:
    server = McpServer(command=[sys.executable, "-c", source], seconds=1.0)
    told: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, about: told.append(str(about)))
    with pytest.raises(InfrastructureError, match="mcp server"):
        await server.open()
    await asyncio.sleep(0.5)
    gc.collect()
    assert told == []


async def test_a_reset_that_is_given_up_leaves_no_program(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    source = f"open({str(begun)!r}, 'w').write(str(__import__('os').getpid())); input()"
    environment = Mine(McpServer(command=[sys.executable, "-c", source], seconds=A_HANG))
    told: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, about: told.append(str(about)))
    resetting = asyncio.create_task(environment.reset(Task("a", "b"), 0))
    async with asyncio.timeout(A_HANG):
        while not (begun.exists() and begun.read_text()):
            await asyncio.sleep(0.01)
    resetting.cancel()
    await asyncio.wait({resetting})
    await environment.close()
    with pytest.raises(ProcessLookupError):
        os.kill(int(begun.read_text()), 0)
    gc.collect()
    assert told == []


class Mine(McpTools, Environment):
    """An environment with a tool of its own and a server's."""

    def __init__(self, server: McpServer) -> None:
        self.mcp = server

    @tool
    async def shout(self, word: str) -> str:
        """Say it loudly."""
        return word.upper()

    async def verify(self, trajectory: Any) -> Verdict:
        right = "total 5" in trajectory.observed[-1]
        return Verdict(float(right), right)


@pytest.mark.slow
def test_in_an_environment(stdio: McpServer) -> None:
    environment = Mine(stdio)
    assert [one.name for one in environment.tools()][:3] == ["shout", "add", "die"]
    calls = (
        ToolCall("shout", {"word": "hi"}),
        ToolCall("add", {"number": 2}),
        ToolCall("fail", {"why": "no"}),
        ToolCall("nothing", {}),
        ToolCall("add", {"number": 3}),
    )
    script = [Action("", calls=calls)]
    plays = played_all(environment, [Task("a", "Go"), Task("b", "Go")], [script, script])
    for play in plays:  # each episode has a server of its own
        (step,) = steps_of(play)
        said = [result.content for result in step.results]
        assert said[:2] == ["HI", "total 2"]
        assert "no" in said[2]
        assert said[3].startswith("Error: there is no tool 'nothing'; tools: shout, add, die")
        assert said[4] == "total 5"
        assert [result.ok for result in step.results] == [True, True, False, False, True]


@pytest.mark.long
def test_two_tools_of_one_name(stdio: McpServer) -> None:
    class Twice(Mine):
        @tool
        async def add(self) -> str:
            """Mine."""
            return ""

    with pytest.raises(ConfigError, match="two tools are called 'add'"):
        Twice(stdio).tools()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"command": ["a"], "url": "http://a"},
        {"url": "a:1"},
        {"url": "http://localhost:abc/mcp"},
        {"url": "http:///mcp"},
        {"command": ["no-such-program"]},
    ],
)
def test_options_that_make_no_sense(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="mcp"):
        McpServer(**options)
